"""The last rungs of both ladders: their arithmetic in NumPy, their tile, and what the compiler makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from profiler import build
from profiler.loading import load_specimen
from profiler.nvdisasm import find_tools
from profiler.specimen import CudaSource

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
q6k_spec = load_specimen(KERNELS / "q6k")
FOLDED = next(v for v in q6k_spec.variants if v.name == "8_folded_scales")
MINS = next(v for v in load_specimen(KERNELS / "q4k").variants if v.name == "6_tensor_mins")
SOURCES = (*FOLDED.sources, *MINS.sources)


def fold(q: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's fold4 on pairs of weights (q 0..63) and a scale: the signed high and the unsigned low bytes."""
    pair = q[:, 0].astype(np.uint32) | q[:, 1].astype(np.uint32) << np.uint32(16)
    offset = ((-32 * scale.astype(np.int64)) * 65537 + 0x8000) & 0xFFFFFFFF
    factor = (scale.astype(np.int64) & 0xFFFFFFFF).astype(np.uint64)
    word = (pair.astype(np.uint64) * factor + offset.astype(np.uint64)).astype(np.uint32)
    lanes = np.stack([word & 0xFFFF, word >> 16], axis=1)
    high = (lanes >> 8).astype(np.uint8)
    high[:, 0] ^= 0x80
    return high.view(np.int8), (lanes & 0xFF).astype(np.uint8)


def test_two_bytes_hold_every_scaled_weight() -> None:
    q0, q1, scale = (x.reshape(-1) for x in np.meshgrid(np.arange(64), np.arange(64), np.arange(-128, 128)))
    high, low = fold(np.stack([q0, q1], axis=1), scale)
    expected = (np.stack([q0, q1], axis=1) - 32) * scale[:, None]
    assert expected.size > 2_000_000
    assert np.array_equal(256 * high.astype(int) + low, expected)


def test_the_sum_of_32_products_is_exact_in_float32() -> None:
    # 32 weights of (q - 32) * sc in -4064..4096, times int8: the largest sum is below 2^24.
    assert 32 * 4096 * 127 < 2**24


@pytest.mark.parametrize(("tokens", "tile"), [(2630, 192), (512, 128), (4096, 128)])
def test_the_tile_with_the_fuller_last_wave_is_chosen(tokens: int, tile: int) -> None:
    # 132 multiprocessors, as on an H200, where these were the faster tiles (kernels/README.md).
    chosen = FOLDED.prepare.__globals__["folded_tile"](q6k_spec.shape.but(tokens=tokens), 132)
    assert chosen == tile


def compiler() -> str:
    found = build.find_nvcc()
    if found is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++")
    return found


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[CudaSource, str], tuple[Path, str]]:
    """Every source for every architecture: the cubin, and what ptxas said."""
    nvcc, folder = compiler(), tmp_path_factory.mktemp("best")

    def one(job: tuple[int, CudaSource, str]) -> tuple[Path, str]:
        number, source, arch = job
        out = folder / f"{number}.cubin"
        words = [nvcc, "-cubin", f"-arch={arch}", "-std=c++17", "-Xptxas", "-v", *source.options]
        done = subprocess.run([*words, "-o", str(out), str(source.path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return out, done.stderr

    jobs = [(n, s, a) for n, (s, a) in enumerate((s, a) for s in SOURCES for a in ARCHITECTURES)]
    with ThreadPoolExecutor(2) as pool:
        return {(s, a): made for (_, s, a), made in zip(jobs, pool.map(one, jobs), strict=True)}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.entries[0])
def test_registers_leave_room_for_the_blocks_that_the_bounds_promise(
    compiled: dict[tuple[CudaSource, str], tuple[Path, str]], source: CudaSource, arch: str
) -> None:
    log = compiled[source, arch][1]
    registers = int(re.search(r"Used (\d+) registers", log)[1])  # type: ignore[index]
    assert registers <= (168 if "192" in source.entries[0] else 128)


def test_what_the_tensor_cores_are_asked_for(compiled: dict[tuple[CudaSource, str], tuple[Path, str]]) -> None:
    for source in SOURCES:
        listing = subprocess.run(
            [find_tools()[0].path, "-c", str(compiled[source, "sm_90a"][0])], capture_output=True, text=True, check=True
        ).stdout
        assert "LDSM.16.M88.4" in listing
        assert "LDGSTS.E.BYPASS.128" in listing
        assert "LDG.E.U8" not in listing
        if source.entries[0].startswith("q6k"):
            # One mma for the signed high bytes to one for the unsigned low ones.
            assert listing.count("IMMA.16832.U8.S8") == listing.count("IMMA.16832.S8.S8") > 0
        else:
            assert listing.count("HMMA.1688.F32.TF32") * 4 == listing.count("IMMA.16832.S8.S8") > 0
