"""The q4_K ladder without a GPU: format, registry, the kernels on the host, and what the compiler makes of them."""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from planted_bug import KERNELS
from q4k_bugs import BUGS, HIDDEN, SHAPE, Bug, checked
from q4k_host import PlanesBench, PointedArray, libraries

from profiler import build, nvdisasm
from profiler.loading import load_specimen, neighbour
from profiler.specimen import CudaSource, Shape
from profiler.verify import verify

FOLDER = KERNELS / "q4k"
SPEC = load_specimen(FOLDER)
LADDER = tuple(variant for variant in SPEC.variants if variant.bit_equal == "k32")
RUNGS = ("1_narrow", "2_wide_kd4", "3_wide_kd8", "4_planes_kd4", "5_planes_kd8")
q4k = neighbour(FOLDER / "spec.py", "../formats/q4k.py")
planes = neighbour(FOLDER / "spec.py", "planes.py")

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, to run kernels on the host")


def blocks(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return q4k.random_blocks(np.random.default_rng(seed), rows, k)


# The format


def test_decode_is_what_the_gguf_package_makes_of_the_same_bytes() -> None:
    stored = blocks(160, 1024)
    expected = gguf.dequantize(stored, gguf.GGMLQuantizationType.Q4_K)
    assert np.array_equal(q4k.decode(stored).astype(np.float32).reshape(-1), expected)
    assert 0.03 < expected.std() < 0.1


def test_decode_is_the_definition_of_each_weight() -> None:
    stored = blocks(3, 512).reshape(-1, 144)
    for block, decoded in zip(stored, q4k.decode(stored), strict=True):
        d, dmin = (float(x) for x in block[:4].view("<f2"))
        packed = [int(byte) for byte in block[4:16]]
        for i in range(256):
            j, byte = i // 32, int(block[16 + i // 64 * 32 + i % 32])
            if j < 4:
                sc, m = packed[j] & 63, packed[j + 4] & 63
            else:
                sc = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
                m = packed[j + 4] >> 4 | packed[j] >> 6 << 4
            assert decoded[i] == d * sc * (byte >> 4 if j % 2 else byte & 15) - dmin * m


def test_random_blocks_have_every_scale_min_and_nibble() -> None:
    stored = blocks(64, 2048)
    halves = stored.reshape(-1, 144)[:, :4].copy().view("<f2").astype(np.float32)
    scale, minimum = q4k.scales(stored)
    for part, half in ((scale, halves[:, :1]), (-minimum, halves[:, 1:])):
        assert set(np.rint(part / half).astype(int).reshape(-1)) == set(range(64))
    assert set(q4k.nibbles(stored).reshape(-1)) == set(range(16))


@pytest.mark.parametrize(("rows", "k"), [(1, 256), (130, 768), (128, 256)])
def test_planes_hold_exactly_what_decode_makes(rows: int, k: int) -> None:
    stored = blocks(rows, k, seed=rows)
    eb, sb = q4k.planes(stored, rows, k)
    height = -(-rows // 128) * 128
    assert (eb.shape, eb.dtype) == ((k // 256, height, 8, 32), np.int8)
    assert (sb.shape, sb.dtype) == ((k // 32, height, 2), np.float32)
    assert not eb[:, rows:].any()
    assert not sb[:, rows:].any()
    expected = q4k.decode(stored).reshape(rows, k)
    for row, chunk in ((r, c) for r in range(rows) for c in range(k // 32)):
        scale, minimum = (float(x) for x in sb[chunk, row])
        weights = scale * eb[chunk // 8, row, chunk % 8] + minimum
        assert np.array_equal(weights, expected[row, chunk * 32 : chunk * 32 + 32])


def test_reference_is_the_product_of_what_the_package_decodes() -> None:
    shape = Shape(tokens=3, rows=70, k=512)
    inputs = SPEC.make_inputs(shape)
    weights = gguf.dequantize(inputs["weights"], gguf.GGMLQuantizationType.Q4_K).reshape(70, 512).astype(np.float64)
    activations = inputs["a_q"] * np.repeat(inputs["a_scale"].T.astype(np.float64), 32, axis=1)
    assert np.allclose(SPEC.make_reference(shape, inputs), activations @ weights.T, rtol=1e-6, atol=1e-6)


def test_the_sweep_has_what_the_kernels_must_survive() -> None:
    assert tuple(variant.name for variant in LADDER) == RUNGS
    assert len(SPEC.sweep) >= 8
    assert {shape.k for shape in SPEC.sweep} >= {256, 512, 768, 2048}
    for size, tile in ((name, tile) for name in ("rows", "tokens") for tile in (64, 128)):
        assert {shape[size] % tile == 0 for shape in SPEC.sweep} == {True, False}, size
    # Odd rows are written one by one, even ones in pairs.
    assert {shape.rows % 2 for shape in SPEC.sweep if shape.rows > 128} == {0, 1}
    assert any(shape.tokens % 2 and shape.tokens > 128 for shape in SPEC.sweep)
    assert SPEC.work_of(SPEC.shape).macs == 2630 * 3584 * 3584


# The registry


class Pointer:
    """Stands in for an array of weights on the device."""

    def __init__(self, pointer: int) -> None:
        self.data = type("Memory", (), {"ptr": pointer})()


class Loading:
    """What ``register`` takes of a case: arrays and the kernel that expands; nothing is launched."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def array(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.zeros(shape, dtype)

    def kernel(self, entry: str) -> Callable[..., None]:
        return lambda grid, block, args: self.launched.append((entry, grid, block, args))


def test_registered_planes_are_found_by_pointer_and_sizes() -> None:
    case, weights = Loading(), Pointer(0x1000)
    made = planes.register(case, weights, 130, 512)
    assert planes.find(0x1000, 130, 512) is made
    assert (made.eb.shape, made.sb.shape) == ((2, 256, 8, 32), (16, 256, 2))
    ((entry, grid, block, args),) = case.launched
    assert (entry, grid, block) == ("q4k_expand_planes", (256 * 8 // 256, 2), (256,))
    assert args[:3] == (weights, made.eb, made.sb)
    assert [int(arg) for arg in args[3:]] == [130, 256]
    assert planes.find(0x2000, 130, 512) is None
    assert planes.find(0x1000, 129, 512) is None
    assert planes.find(0x1000, 130, 256) is None


def test_planes_go_with_the_weights_they_were_made_of() -> None:
    weights = Pointer(0x3000)
    gone = weakref.ref(planes.register(Loading(), weights, 8, 256).eb)
    del weights
    gc.collect()
    # Other weights of the same sizes may now lie there.
    assert planes.find(0x3000, 8, 256) is None
    assert gone() is None


def test_registering_again_replaces_the_planes() -> None:
    first = Pointer(0x4000)
    old = planes.register(Loading(), first, 8, 256)
    again = planes.register(Loading(), first, 8, 256)
    assert planes.find(0x4000, 8, 256) is again is not old
    wider = planes.register(Loading(), first, 8, 512)
    assert planes.find(0x4000, 8, 256) is None
    assert planes.find(0x4000, 8, 512) is wider


def test_the_end_of_old_weights_leaves_what_was_registered_at_their_place() -> None:
    old = Pointer(0x5000)
    planes.register(Loading(), old, 8, 256)
    new = Pointer(0x5000)
    kept = planes.register(Loading(), new, 8, 256)
    del old
    gc.collect()
    assert planes.find(0x5000, 8, 256) is kept


@pytest.mark.parametrize("kd", [4, 8])
def test_a_launch_takes_the_planes_or_else_the_raw_blocks(kd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[str, tuple[int, ...], int]] = []

    class Kernel:
        def __init__(self, entry: str) -> None:
            self.entry = entry

        def __call__(self, grid: Any, block: Any, args: Any, shared: int = 0) -> None:
            launched.append((self.entry, grid, shared))

    case = Loading()
    monkeypatch.setattr(case, "kernel", Kernel)
    inputs = {"weights": Pointer(0x6000), "a_q": None, "a_scale": None, "a_total": None}
    for name, value in (("inputs", inputs), ("shape", Shape(tokens=300, rows=130, k=512)), ("out", None)):
        monkeypatch.setattr(case, name, value, raising=False)
    (variant,) = SPEC.pick((f"{4 if kd == 4 else 5}_planes_kd{kd}",))
    launch = variant.prepare(case)
    assert [name for name, *_ in launched] == ["q4k_expand_planes"]
    launched.clear()
    launch()
    planes.register(Loading(), inputs["weights"], 8, 256)
    launch()
    assert [name for name, *_ in launched] == [f"q4k_gemm_planes_kd{kd}", f"q4k_gemm_wide_kd{kd}"]
    assert {grid for _, grid, _ in launched} == {(2, 3)}
    assert all(48 * 1024 < shared <= 113 * 1024 for *_, shared in launched)
    assert variant.path(SHAPE) == f"q4k_gemm_planes_kd{kd}"


# The kernels, on the host


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[CudaSource], ctypes.CDLL]:
    """``library(source)`` is a source, compiled for the host."""
    return libraries(tmp_path_factory.mktemp("q4k"))


@needs_gxx
def test_every_rung_is_right_on_the_host(library: Callable[[CudaSource], ctypes.CDLL]) -> None:
    shapes = [Shape(tokens=65, rows=130, k=512), Shape(tokens=3, rows=5, k=768)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(library, dict.fromkeys(source for variant in LADDER for source in variant.sources)))
    done = verify(SPEC, LADDER, PlanesBench(library), shapes, seed=1, programs=False)
    assert [(c.variant, c.shape, c.problems) for c in done.checks if c.verdict != "ok"] == []
    assert len(done.checks) == 5 * 2
    assert all(c.relative_error < 5e-7 and c.path_ok for c in done.checks)
    assert Counter(c.same_bits_as is None for c in done.checks) == {True: 2, False: 8}
    # A byte a weight and 8 bytes a chunk, of rows padded to 128; nothing without planes.
    extra = {"narrow": [0, 0], "wide": [0, 0], "planes": [256 * 512 * 5 // 4, 128 * 768 * 5 // 4]}
    assert all([c.extra_bytes for c in done.of(name)] == extra[name.split("_")[1]] for name in RUNGS)


@needs_gxx
def test_planes_of_the_kernel_are_those_of_numpy(library: Callable[[CudaSource], ctypes.CDLL]) -> None:
    bench, shape = PlanesBench(library), Shape(tokens=1, rows=130, k=768)
    (variant,) = SPEC.pick(("4_planes_kd4",))
    inputs = SPEC.make_inputs(shape, seed=3)
    case = bench.case(SPEC, variant, shape, inputs)
    case.prepare()
    assert isinstance(case.inputs["weights"], PointedArray)
    pointer = case.inputs["weights"].data.ptr
    made = planes.find(pointer, 130, 768)
    eb, sb = q4k.planes(inputs["weights"], 130, 768)
    assert bench.device.download(made.eb).tobytes() == eb.tobytes()
    assert bench.device.download(made.sb).tobytes() == sb.tobytes()
    del case
    assert planes.find(pointer, 130, 768) is None


@needs_gxx
@pytest.mark.parametrize("bug", [*BUGS, *HIDDEN], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_on_the_host(
    bug: Bug, library: Callable[[CudaSource], ctypes.CDLL], tmp_path: Path
) -> None:
    check = checked(bug.plant(tmp_path / "kernels"), bug.variant, PlanesBench(library))
    assert (check.verdict, bug.why in "; ".join(check.problems)) == (bug.verdict, True), check.problems


@needs_gxx
def test_another_matrix_of_the_same_sizes_is_no_bug(library: Callable[[CudaSource], ctypes.CDLL]) -> None:
    assert checked(FOLDER, "5_planes_kd8", PlanesBench(library)).verdict == "ok"


# What the compiler makes of them

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
EXPAND = "q4k_expand_planes"
SOURCES = {source.entries[0]: source for variant in LADDER for source in variant.sources}
WIDE = tuple(entry for entry in SOURCES if "wide" in entry)
PLANES = tuple(entry for entry in SOURCES if "gemm_planes" in entry)
Compiled = dict[tuple[str, str], tuple[Path, str]]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The cubin of each kernel for each architecture, and what ptxas says of it."""
    nvcc = build.find_nvcc()
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++, to compile kernels for every architecture")
    folder = tmp_path_factory.mktemp("q4k")

    def one(job: tuple[str, str]) -> tuple[Path, str]:
        entry, arch = job
        source, out = SOURCES[entry], folder / f"{entry}.{arch}.cubin"
        command = build.command_line(nvcc, source.path, arch, ["-Xptxas", "-v", *source.options], out)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr, done.stderr
        return out, done.stderr

    jobs = [(entry, arch) for entry in SOURCES for arch in ARCHITECTURES]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(jobs, pool.map(one, jobs), strict=True))


def number(log: str, pattern: str) -> int:
    found = re.search(pattern, log)
    assert found, log
    return int(found[1])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_leave_room_for_two_blocks_without_spills(compiled: Compiled, arch: str) -> None:
    for entry in SOURCES:
        log = compiled[entry, arch][1]
        assert number(log, r"Used (\d+) registers") <= 128, entry
        # The architecture that is measured; elsewhere another compiler may keep a value or two in memory for a stage.
        assert number(log, r"(\d+) bytes spill stores") <= (0 if arch == "sm_90a" else 32), entry


@pytest.fixture(scope="session")
def codes(compiled: Compiled) -> dict[str, str]:
    """What nvdisasm prints of each kernel for sm_90a."""

    def one(entry: str) -> str:
        listing = nvdisasm.disassemble(compiled[entry, "sm_90a"][0].read_bytes(), [])
        assert listing.problem is None
        return listing.text

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(SOURCES, pool.map(one, SOURCES), strict=True))


def opcodes(text: str) -> Counter[str]:
    return Counter(re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_.]+)", text))


def starting(code: Counter[str], beginning: str) -> int:
    return sum(times for opcode, times in code.items() if opcode.startswith(beginning))


def test_products_are_over_32_k(codes: dict[str, str]) -> None:
    # The narrow loop may be unrolled; a round of the wide ones is four chunks of 4 x 4 tiles.
    counts = {entry: opcodes(text) for entry, text in codes.items()}
    assert all(starting(code, "IMMA") == starting(code, "IMMA.16832.S8.S8") for code in counts.values())
    assert starting(counts["q4k_gemm_narrow"], "IMMA") % 8 == 0 != starting(counts["q4k_gemm_narrow"], "IMMA")
    assert {starting(counts[entry], "IMMA") for entry in (*WIDE, *PLANES)} == {64}
    # Four fragments of activations a chunk, two of weights: of two chunks at once where they are packed.
    assert {starting(counts[entry], "LDSM.16.M88.4") for entry in WIDE} == {4 * 4 + 2 * 2}
    assert {starting(counts[entry], "LDSM.16.M88.4") for entry in PLANES} == {4 * 4 + 2 * 4}


def test_loads_are_16_bytes_wide(codes: dict[str, str]) -> None:
    for entry, text in codes.items():
        code = opcodes(text)
        assert not any(".U8" in opcode or ".S8" in opcode or ".U16" in opcode for opcode in code if opcode[0] == "L"), (
            entry
        )
        if entry in WIDE + PLANES:
            # All by asynchronous copies; those of four bytes bring activation scales, a pair of them in two.
            assert starting(code, "LDG.") == 0
            kd = int(entry[-1])
            narrow = code["LDGSTS.E"] + code["LDGSTS.E.LTC128B"]
            assert narrow == 2 * kd
            assert starting(code, "LDGSTS") - narrow == starting(code, "LDGSTS.E.BYPASS.128")
            assert starting(code, "LDGSTS.E.BYPASS.128") >= 2 * kd
        elif entry == EXPAND:
            assert starting(code, "LDG.E.128") == 2
            assert starting(code, "STG.E.128") == 2


def test_only_kernels_of_raw_blocks_unpack(codes: dict[str, str]) -> None:
    for entry, text in codes.items():
        assert ("0xf0f0f0f" in text) == (entry not in PLANES), entry
        assert ("HADD2.F32" in text or "F2F" in text) == (entry not in PLANES), entry


def test_sources_include_nothing_but_our_own_and_balance_their_regions() -> None:
    sources = {source.path for source in SOURCES.values()}
    for path in (*sources, FOLDER / "q4k.cuh"):
        text = path.read_text()
        assert set(re.findall(r"#include (.*)", text)) == {
            '"../formats/ptx.cuh"' if path.suffix == ".cuh" else '"q4k.cuh"'
        }
        assert set(re.findall(r"@region (\w+)", text)) <= {"stage_a", "expand_b", "scales", "mma", "epilogue"}
        assert len(re.findall(r"// @region", text)) == len(re.findall(r"// @end", text))
    for name in ("1_narrow", "2_wide", "4_planes"):
        regions = set(re.findall(r"@region (\w+)", (FOLDER / f"{name}.cu").read_text()))
        assert regions == {"stage_a", "expand_b", "scales", "mma", "epilogue"}
