"""The q6_K ladder without a GPU: the format, the kernels on the host, and what the compiler makes of them."""

from __future__ import annotations

import ctypes
import difflib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest
from emulated import EmulatedBench, compile_for_host
from planted_bug import KERNELS
from q6k_bugs import BUGS, NARROW, RACES, WIDE, Bug

from profiler import build, nvdisasm
from profiler.launch import Kernel
from profiler.loading import load_specimen, neighbour
from profiler.specimen import CudaSource, Shape, Variant
from profiler.verify import verify

FOLDER = KERNELS / "q6k"
SPEC = load_specimen(FOLDER)
LADDER = tuple(variant for variant in SPEC.variants if variant.bit_equal == "k16")
q6k = neighbour(FOLDER / "spec.py", "../formats/q6k.py")
q8 = neighbour(FOLDER / "spec.py", "../formats/q8.py")

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, to run kernels on the host")


def blocks(count: int, seed: int = 0) -> np.ndarray:
    return q6k.random_blocks(count, np.random.default_rng(seed))


# The format


def test_decode_is_what_the_gguf_package_makes_of_the_same_bytes() -> None:
    stored = blocks(700)
    expected = gguf.dequantize(stored.reshape(-1), gguf.GGMLQuantizationType.Q6_K).reshape(700, 256)
    assert np.array_equal(q6k.decode(stored), expected.astype(np.float64))
    assert 0.03 < expected.std() < 0.1


def test_the_pitch_moves_blocks_and_keeps_their_values() -> None:
    stored = blocks(9)
    for pitch in (210, 224, 240):
        padded = q6k.to_pitch(stored, pitch)
        assert padded.shape == (9 * pitch,)
        assert np.array_equal(q6k.decode(padded.reshape(9, pitch)), q6k.decode(stored))
    assert np.array_equal(q6k.to_pitch(stored, 210), stored.reshape(-1))


def by_definition(block: np.ndarray, place: int) -> int:
    """One weight's level, byte by byte."""
    half, quarter, within = place // 128, place % 128 // 32, place % 32
    low = int(block[64 * half + 32 * (quarter % 2) + within]) >> 4 * (quarter // 2) & 15
    return (low | (int(block[128 + 32 * half + within]) >> 2 * quarter & 3) << 4) - 32


def test_levels_follow_the_definition() -> None:
    stored = blocks(12)
    assert q6k.levels(stored).tolist() == [[by_definition(block, place) for place in range(256)] for block in stored]


def test_closed_form_equals_the_definition_over_half_a_million_weights() -> None:
    stored = blocks(2048)
    found = np.empty((2048, 16, 16), np.int8)
    for j in range(16):
        nibbles = np.ascontiguousarray(stored[:, q6k.NIBBLES[j] :][:, :16]).view("<u4")
        highs = np.ascontiguousarray(stored[:, q6k.HIGHS[j] :][:, :16]).view("<u4")
        found[:, j] = q6k.expand_wide(nibbles, highs, j % 8 // 2).view(np.int8)
    assert found.size >= 512_000
    assert np.array_equal(found.reshape(2048, 256), q6k.levels(stored))
    assert set(np.unique(found)) == set(range(-32, 32))


def test_closed_form_on_every_byte() -> None:
    low, high = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    for quarter in range(4):
        expected = (low >> 4 * (quarter // 2) & 15 | (high >> 2 * quarter & 3) << 4).astype(np.int8) - 32
        found = q6k.expand_wide(low.view("<u4"), high.view("<u4"), quarter).view(np.int8)
        assert np.array_equal(found, expected)


# The specimen


def test_inputs_have_the_same_values_at_every_pitch() -> None:
    assert SPEC.layout == ("pitch",)
    wide, narrow = (SPEC.make_inputs(shape, 5) for shape in (WIDE, NARROW))
    assert np.array_equal(wide["a_q"], narrow["a_q"])
    assert np.array_equal(wide["a_scale"], narrow["a_scale"])
    assert wide["weights"].size == WIDE.rows * 2 * 224
    assert narrow["weights"].size == WIDE.rows * 2 * 210
    assert np.array_equal(SPEC.make_reference(WIDE, wide), SPEC.make_reference(NARROW, narrow))
    assert not np.array_equal(SPEC.make_inputs(WIDE, 6)["a_q"], wide["a_q"])


def test_reference_is_the_product_of_what_both_packages_decode() -> None:
    shape = Shape(tokens=3, rows=601, k=512, pitch=210)
    inputs = SPEC.make_inputs(shape)
    weights = gguf.dequantize(inputs["weights"], gguf.GGMLQuantizationType.Q6_K).reshape(601, 512).astype(np.float64)
    activations = inputs["a_q"] * np.repeat(inputs["a_scale"].T.astype(np.float64), 32, axis=1)
    expected = np.einsum("tk,rk->tr", activations, weights)
    assert np.allclose(SPEC.make_reference(shape, inputs), expected, rtol=1e-12, atol=1e-12)


def test_the_sweep_has_what_the_kernels_must_survive() -> None:
    assert len(SPEC.sweep) >= 8
    assert {shape.pitch % 16 == 0 for shape in SPEC.sweep} == {True, False}
    assert {shape.k for shape in SPEC.sweep} >= {256, 2048}
    assert any(shape.rows % 128 for shape in SPEC.sweep)
    assert any(shape.rows % 128 == 0 for shape in SPEC.sweep)
    assert any(shape.tokens % 2 and shape.tokens > 64 for shape in SPEC.sweep)
    assert SPEC.work_of(SPEC.shape).macs == 2630 * 3584 * 3584


def test_paths_are_promised_by_the_pitch() -> None:
    promised = [(v.path(NARROW), v.path(WIDE)) for v in LADDER]
    assert promised == [(1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (1, 2), ("q6k_gemm", "q6k_gemm")]


# The kernels, on the host


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], ctypes.CDLL]:
    """``library(path)`` is a rung, compiled for the host."""
    return cache(lambda path: compile_for_host(path, tmp_path_factory.mktemp(path.stem) / "host"))


@needs_gxx
def test_every_rung_is_right_on_the_host(library: Callable[[Path], ctypes.CDLL]) -> None:
    shapes = [Shape(tokens=t, rows=r, k=k, pitch=p) for t, r, k in ((65, 130, 256), (3, 5, 768)) for p in (210, 224)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(library, [variant.sources[0].path for variant in LADDER]))
    done = verify(SPEC, LADDER, EmulatedBench(library), shapes, seed=1, programs=False)
    assert [(c.variant, c.shape, c.problems) for c in done.checks if c.verdict != "ok"] == []
    assert len(done.checks) == 7 * 4
    assert all(c.relative_error < 5e-7 and c.path_ok for c in done.checks)
    # One result leads, all others have its bits: of every rung, at both pitches.
    assert Counter(c.same_bits_as is None for c in done.checks) == {True: 2, False: 26}
    planes = [c.extra_bytes for c in done.checks if c.variant == "7_expanded_plane"]
    assert planes == [2 * 4 * 128 * 80, 2 * 4 * 128 * 80, 12 * 128 * 80, 12 * 128 * 80]


@needs_gxx
def test_both_expansions_of_the_kernels_agree_with_the_definition(library: Callable[[Path], ctypes.CDLL]) -> None:
    stored, bench = blocks(256, seed=4), EmulatedBench(library)
    out, differing = np.zeros((256, 256), np.int8), np.zeros(1, np.uint32)
    source = CudaSource(FOLDER / "expand_check.cu", ("q6k_expand_check",))
    kernel = Kernel("q6k_expand_check", bench.function(source, "q6k_expand_check"), [])
    padded = bench.device.upload(q6k.to_pitch(stored, 224))
    kernel((16,), (256,), (padded, np.int32(256), np.int32(224), out, differing))
    assert differing.tolist() == [0]
    assert np.array_equal(out, q6k.levels(stored))


@needs_gxx
@pytest.mark.parametrize("bug", [*BUGS, *RACES], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_on_the_host(bug: Bug, tmp_path: Path) -> None:
    specimen = load_specimen(bug.plant(tmp_path / "kernels"))
    (variant,) = specimen.pick((bug.variant,))
    bench = EmulatedBench(cache(lambda path: compile_for_host(path, tmp_path / "host")))
    (check,) = verify(specimen, (variant,), bench, [bug.shape], programs=False).checks
    assert (check.verdict, bug.why in "; ".join(check.problems)) == (bug.verdict, True), check.problems


# What the compiler makes of them

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
RUNGS = tuple(variant.name for variant in LADDER)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Path, str]]:
    """The cubin of each rung for each architecture, and what ptxas says of its kernels."""
    nvcc = build.find_nvcc()
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++, to compile kernels for every architecture")
    folder = tmp_path_factory.mktemp("q6k")

    def one(job: tuple[str, str]) -> tuple[Path, str]:
        name, arch = job
        out = folder / f"{name}.{arch}.cubin"
        command = build.command_line(nvcc, FOLDER / f"{name}.cu", arch, ["-Xptxas", "-v"], out)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr, done.stderr
        return out, done.stderr

    jobs = [(name, arch) for name in RUNGS for arch in ARCHITECTURES] + [("expand_check", "sm_90a")]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(jobs, pool.map(one, jobs), strict=True))


def of_gemm(log: str, pattern: str) -> int:
    """A number that ptxas prints of the kernel q6k_gemm."""
    part = log[log.index("'q6k_gemm'") :]
    part = part[:after] if (after := part.find("Compiling entry function")) > 0 else part
    found = re.search(pattern, part)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_shared_memory_registers_and_spills(compiled: dict[tuple[str, str], tuple[Path, str]], arch: str) -> None:
    logs = {name: compiled[name, arch][1] for name in RUNGS}
    shared = [of_gemm(log, r"(\d+) bytes smem") for log in logs.values()]
    assert shared == [7424, 29696, 29696, 29696, 29696, 0, 44544]
    registers = [of_gemm(log, r"Used (\d+) registers") for log in logs.values()]
    # 65 536 registers: two blocks of 256 threads have 128 each, three have 80.
    assert all(number <= 128 for number in registers[:2])
    assert registers[1] > 80
    assert all(number <= 80 for number in registers[2:])
    spills = [of_gemm(log, r"(\d+) bytes spill stores") for log in logs.values()]
    # The architecture that is measured; elsewhere a value or two that is read once a stage.
    assert max(spills) <= (0 if arch == "sm_90a" else 32), spills


def code_of(compiled: dict[tuple[str, str], tuple[Path, str]], name: str, arch: str = "sm_90a") -> Counter[str]:
    """How often an opcode with its modifiers stands in the GEMM kernel."""
    listing = nvdisasm.disassemble(compiled[name, arch][0].read_bytes(), [])
    assert listing.problem is None
    text = listing.text[listing.text.index(".text.q6k_gemm:") :]
    end = text.find("\n.text.", 10)
    return Counter(
        re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_.]+)", text[:end] if end > 0 else text)
    )


def starting(code: Counter[str], beginning: str) -> int:
    return sum(number for opcode, number in code.items() if opcode.startswith(beginning))


def test_the_code_shows_each_idea(compiled: dict[tuple[str, str], tuple[Path, str]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        codes = dict(zip(RUNGS, pool.map(lambda name: code_of(compiled, name), RUNGS), strict=True))
    one, two, three, four, five, six, seven = codes.values()
    for code in codes.values():
        # One k16 product for each 16x8 tile of a warp, of each of the 16-wide halves of a chunk.
        assert starting(code, "IMMA.16816.S8.S8") >= 16
        assert starting(code, "IMMA") == starting(code, "IMMA.16816.S8.S8")
    assert starting(one, "BAR") == 2
    for code in (one, two, three):
        # Weights in bytes, 16 a turn of a loop; 16 bytes at once for activations alone, before the main loop and in it.
        assert starting(code, "LDG.E.U8") >= 16
        assert starting(code, "LDG.E.128") <= 2
    assert starting(four, "LDG.E.128") >= 8
    assert starting(four, "LDG.E.U8") >= 32
    assert starting(five, "LDG.E.S8") < starting(four, "LDG.E.S8")
    assert starting(five, "LDG.E.U16") < starting(four, "LDG.E.U16")
    assert starting(six, "LDGSTS") > 8
    assert starting(six, "LDG.E.128") <= 2
    assert starting(six, "LDG.E.U8") >= 32
    assert starting(six, "DEPBAR") > 0
    assert starting(seven, "LDG.") == 0
    assert starting(seven, "LDGSTS") > 4


def test_one_idea_a_file() -> None:
    texts = [(FOLDER / f"{name}.cu").read_text().splitlines() for name in RUNGS]
    changed = [
        sum(line[:2] in ("+ ", "- ") for line in difflib.ndiff(before, after)) for before, after in pairwise(texts)
    ]
    assert changed[1] == 4, "title and bounds"
    assert changed[0] <= 20
    assert changed[2] <= 60
    assert changed[3] <= 30
    assert all(len(lines) <= 130 for lines in texts)


def test_sources_include_nothing_but_our_own_and_balance_their_regions() -> None:
    for path in (*FOLDER.glob("*.cu*"), KERNELS / "formats" / "ptx.cuh"):
        text = path.read_text()
        assert set(re.findall(r"#include (.*)", text)) <= {'"q6k.cuh"', '"../formats/ptx.cuh"'}
        assert set(re.findall(r"@region (\w+)", text)) <= {"stage_a", "expand_b", "scales", "mma", "epilogue"}
        assert len(re.findall(r"// @region", text)) == len(re.findall(r"// @end", text))


def test_each_variant_names_its_file() -> None:
    def file(variant: Variant) -> str:
        return variant.sources[0].path.name

    assert [file(variant) for variant in LADDER] == [f"{name}.cu" for name in RUNGS]
    assert all("q6k_gemm" in variant.sources[0].entries for variant in LADDER)
