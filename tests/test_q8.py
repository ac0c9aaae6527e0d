"""Quantised activations: what NumPy promises, and that the kernels' specimen asks for exactly that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_bench import HostBench
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from profiler import build
from profiler.loading import load_specimen, neighbour
from profiler.specimen import CudaSource, Shape
from profiler.verify import Verification, verify

FOLDER = Path(__file__).resolve().parent.parent / "kernels" / "q8"
q8 = neighbour(__file__, "../kernels/formats/q8.py")
CHUNK = q8.CHUNK

# Sizes far from the ends of float32: 127 / max must be finite and max / 127 normal.
finite = st.floats(2.0**-100, 2.0**100, width=32)
activations = st.tuples(st.integers(1, 4), st.integers(1, 3)).flatmap(
    lambda sizes: arrays.arrays(
        np.float32, (sizes[0], sizes[1] * CHUNK), elements=st.one_of(st.just(0.0), finite, finite.map(lambda x: -x))
    )
)


@settings(deadline=None)
@given(activations)
def test_quantise_keeps_every_value_within_half_a_step(x: np.ndarray) -> None:
    q, scale, total = q8.quantise(x)
    tokens, k = x.shape
    assert (q.shape, scale.shape, total.shape) == ((tokens, k), (k // CHUNK, tokens), (k // CHUNK, tokens))
    assert (q.dtype, scale.dtype, total.dtype) == (np.int8, np.float32, np.float32)
    step = np.repeat(scale.T.astype(np.float64), CHUNK, axis=1)
    # Half a step, and four roundings of a number of up to 127 steps.
    assert (np.abs(x - q8.dequantise(q, scale)) <= step * (0.5 + 127 * 4 * 2.0**-24)).all()


@settings(deadline=None)
@given(activations)
def test_the_largest_of_a_chunk_is_127_and_the_total_is_scale_times_sum(x: np.ndarray) -> None:
    q, scale, total = q8.quantise(x)
    chunks = x.reshape(len(x), -1, CHUNK)
    largest = np.abs(chunks).max(axis=2).T
    of_q = np.abs(q.astype(int)).reshape(chunks.shape).max(axis=2).T
    assert np.array_equal(of_q, np.where(largest > 0, 127, 0))
    assert np.array_equal(scale, largest / np.float32(127))
    sums = q.astype(np.int64).reshape(chunks.shape).sum(axis=2).T
    assert np.array_equal(total, (scale.astype(np.float64) * sums).astype(np.float32))


@pytest.mark.parametrize("tiny", [1e-45, 1e-40, 3.7e-37, 2.0**-101])
def test_values_too_small_to_scale_count_as_zeros(tiny: float) -> None:
    q, scale, total = q8.quantise(np.full((1, CHUNK), tiny, dtype=np.float32))
    assert not q.any()
    assert scale[0, 0] == total[0, 0] == 0


def test_zeros_extremes_and_halves() -> None:
    x = np.zeros((1, 4 * CHUNK), np.float32)
    x[0, CHUNK] = -1e30
    x[0, 2 * CHUNK : 2 * CHUNK + 5] = [127, 0.5, 1.5, -2.5, 126.5]
    x[0, 3 * CHUNK :] = np.float32(3)
    q, scale, total = q8.quantise(x)
    assert not q[0, :CHUNK].any()
    assert q[0, CHUNK : CHUNK + 2].tolist() == [-127, 0]
    assert q[0, 2 * CHUNK : 2 * CHUNK + 6].tolist() == [127, 0, 2, -2, 126, 0]
    assert set(q[0, 3 * CHUNK :].tolist()) == {127}
    assert scale[:, 0].tolist() == [0, np.float32(1e30) / np.float32(127), 1, np.float32(3) / np.float32(127)]
    assert total[[0, 2], 0].tolist() == [0, 253]
    assert np.signbit(total[0, 0]) == np.signbit(scale[0, 0]) == np.False_


def test_the_inputs_hold_what_is_hard() -> None:
    shape = Shape(tokens=300, k=2048)
    x = load_specimen(FOLDER).make_inputs(shape)["x"].reshape(-1, CHUNK)
    largest = np.abs(x).max(axis=1)
    assert 0.02 < (largest == 0).mean() < 0.1
    assert 0.02 < ((largest == 127) & (x[:, 1] % 1 == 0.5)).mean() < 0.1
    assert largest[largest > 0].min() < 1e-5
    assert largest.max() > 1e5


class NumpyBench(HostBench):
    """Launches what the kernels are meant to compute; ``spoil`` may plant a defect in (x, q, scale, total)."""

    def __init__(self, spoil: Callable[..., None] = lambda *_: None) -> None:
        super().__init__()
        self.spoil = spoil

    def function(self, source: CudaSource, entry: str) -> Any:
        assert entry in source.entries

        def kernel(grid: Any, block: Any, args: tuple[Any, ...], shared_mem: int) -> None:
            x, q, scale, total, tokens, k = args
            assert (x.shape, type(tokens), type(k)) == ((tokens, k), np.int32, np.int32)
            work = tokens * k // CHUNK if entry == "q8_plain" else -(-tokens // 32) * -(-k // (4 * CHUNK)) * 256
            assert np.prod(grid) * np.prod(block) >= work
            self.calls.append((entry, grid, block, shared_mem))
            made = q8.quantise(x)
            for to, array in zip((q, scale, total), made, strict=True):
                to[...] = array.reshape(-1).view(np.uint8)
            self.spoil(*args)

        return kernel


def verified(spoil: Callable[..., None] = lambda *_: None) -> Verification:
    specimen = load_specimen(FOLDER)
    return verify(specimen, specimen.variants, NumpyBench(spoil))


def test_the_specimen_passes_where_kernels_do_what_numpy_does() -> None:
    result = verified()
    assert result.ok
    assert len(result.checks) == 2 * len(load_specimen(FOLDER).sweep) >= 16
    assert {check.relative_error for check in result.checks} == {0}


@pytest.mark.parametrize("part", [1, 2, 3])
def test_one_byte_that_is_one_off_is_found(part: int) -> None:
    def spoil(*args: Any) -> None:
        args[part][-1] ^= 1

    assert {check.verdict for check in verified(spoil).checks} == {"INCORRECT"}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_kernels_compile(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if build.find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++")
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path))
    specimen = load_specimen(FOLDER)
    for source in {source for variant in specimen.variants for source in variant.sources}:
        image = build.build(source, arch).read_bytes()
        for entry in source.entries:
            assert b".text." + entry.encode() in image


@pytest.mark.gpu
def test_the_kernels_equal_numpy_to_the_bit() -> None:
    from profiler.launch import Bench

    specimen = load_specimen(FOLDER)
    result = verify(specimen, specimen.variants, Bench())
    assert result.ok, [check for check in result.checks if check.verdict != "ok"]
