"""q4_K weights times int8 activations, C[token][row] = sum over k of W[row][k] * A[token][k], one idea a rung.

Formats: ``kernels/formats/q4k.py`` (weights), ``kernels/formats/q8.py`` (activations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.model import Work
from profiler.specimen import CudaSource, Shape, Specimen

q4k = neighbour(__file__, "../formats/q4k.py")
q8 = neighbour(__file__, "../formats/q8.py")
planes = neighbour(__file__, "planes.py")
decoder = neighbour(__file__, "../formats/decoder.py")

HERE = Path(__file__).parent
# Bytes of shared memory of a block, by chunks a stage; the kernels check the number when they are compiled.
WIDE_SHARED = {4: 86_016, 8: 100_352}
PLANES_SHARED = {4: 81_920, 8: 114_688}

NARROW = CudaSource(HERE / "1_narrow.cu", ("q4k_gemm_narrow",))
EXPAND = CudaSource(HERE / "expand.cu", ("q4k_expand_planes",))


def source(file: str, entry: str, kd: int, shared: int) -> CudaSource:
    """Return a source compiled for ``kd`` chunks a stage."""
    return CudaSource(HERE / file, (entry,), (f"-DKD={kd}", f"-DSHARED={shared}"))


WIDE = {kd: source("2_wide.cu", f"q4k_gemm_wide_kd{kd}", kd, WIDE_SHARED[kd]) for kd in (4, 8)}
PLANES = {kd: source("4_planes.cu", f"q4k_gemm_planes_kd{kd}", kd, PLANES_SHARED[kd]) for kd in (4, 8)}

SPEC = Specimen(
    name="q4k",
    about="q4_K weights times int8 activations on int8 tensor cores",
    shape=Shape(tokens=2630, rows=3584, k=3584),
    sweep=(
        Shape(tokens=1, rows=1, k=256),
        Shape(tokens=1, rows=128, k=2048),
        Shape(tokens=7, rows=130, k=256),
        Shape(tokens=64, rows=64, k=512),
        Shape(tokens=65, rows=127, k=768),
        Shape(tokens=128, rows=256, k=1024),
        Shape(tokens=129, rows=257, k=512),
        Shape(tokens=200, rows=384, k=256),
        Shape(tokens=255, rows=513, k=1280),
        Shape(tokens=300, rows=600, k=2048),
    ),
    tolerance=2e-6,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Random blocks, and random activations quantised as ``formats/q8.py`` does it."""
    weights = q4k.random_blocks(rng, shape.rows, shape.k)
    a_q, a_scale, a_total = q8.quantise(rng.standard_normal((shape.tokens, shape.k), dtype=np.float32))
    return {"weights": weights, "a_q": a_q, "a_scale": a_scale, "a_total": a_total}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The same product in float64."""
    weights = q4k.decode(inputs["weights"]).reshape(shape.rows, shape.k)
    return q8.dequantise(inputs["a_q"], inputs["a_scale"]) @ weights.T


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """C, row-major."""
    return (shape.tokens, shape.rows), "float32"


@SPEC.work
def work(shape: Shape) -> Work:
    """One multiply-accumulate a weight and token."""
    return Work.gemm(shape.tokens, shape.rows, shape.k)


def arguments(case: Any) -> tuple[Any, ...]:
    """Return what every GEMM takes after the weights."""
    inputs, shape = case.inputs, case.shape
    sizes = np.int32(shape.tokens), np.int32(shape.rows), np.int32(shape.k)
    return (inputs["a_q"], inputs["a_scale"], inputs["a_total"], case.out, *sizes)


def grid(shape: Shape, tile: int) -> tuple[int, int]:
    """Return the blocks of a square tile, rows first."""
    return -(-shape.rows // tile), -(-shape.tokens // tile)


@SPEC.variant(
    "1_narrow",
    idea="64 x 64 tile, one chunk of 32 k at a time",
    sources=(NARROW,),
    bit_equal="k32",
    path=lambda shape: "q4k_gemm_narrow",
)
def narrow(case: Any) -> Callable[[], None]:
    """The control."""
    kernel, args = case.kernel("q4k_gemm_narrow"), (case.inputs["weights"], *arguments(case))
    blocks = grid(case.shape, 64)
    return lambda: kernel(blocks, (128,), args)


def wide(case: Any, kd: int) -> Callable[[], None]:
    """Return the launch of the wide kernel that reads raw blocks."""
    kernel, args = case.kernel(f"q4k_gemm_wide_kd{kd}"), (case.inputs["weights"], *arguments(case))
    blocks = grid(case.shape, q4k.TILE)
    return lambda: kernel(blocks, (256,), args, shared=WIDE_SHARED[kd])


@SPEC.variant(
    "2_wide_kd4",
    idea="128 x 128 tile, nibbles expanded in the loop, 4 chunks a stage",
    sources=(WIDE[4],),
    bit_equal="k32",
    path=lambda shape: "q4k_gemm_wide_kd4",
)
def wide_kd4(case: Any) -> Callable[[], None]:
    """Half a super-block a stage, two buffers."""
    return wide(case, 4)


@SPEC.variant(
    "3_wide_kd8",
    idea="8 chunks a stage: each stage is a super-block",
    sources=(WIDE[8],),
    bit_equal="k32",
    path=lambda shape: "q4k_gemm_wide_kd8",
)
def wide_kd8(case: Any) -> Callable[[], None]:
    """A whole super-block a stage, two buffers of activations alone."""
    return wide(case, 8)


def expanded(case: Any, kd: int) -> Callable[[], None]:
    """Register the planes of the weights, and return the launch that looks them up, or else reads the raw blocks."""
    weights, shape = case.inputs["weights"], case.shape
    planes.register(case, weights, shape.rows, shape.k)
    fallback, kernel = wide(case, kd), case.kernel(f"q4k_gemm_planes_kd{kd}")
    args, blocks = arguments(case), grid(case.shape, q4k.TILE)

    def launch() -> None:
        found = planes.find(int(weights.data.ptr), shape.rows, shape.k)
        if found is None:
            fallback()
        else:
            kernel(blocks, (256,), (found.eb, found.sb, *args), shared=PLANES_SHARED[kd])

    return launch


@SPEC.variant(
    "4_planes_kd4",
    idea="planes expanded at load time, 4 chunks a stage",
    sources=(PLANES[4], EXPAND, WIDE[4]),
    bit_equal="k32",
    path=lambda shape: "q4k_gemm_planes_kd4",
)
def planes_kd4(case: Any) -> Callable[[], None]:
    """Staging is 16-byte copies."""
    return expanded(case, 4)


@SPEC.variant(
    "5_planes_kd8",
    idea="planes expanded at load time, 8 chunks a stage",
    sources=(PLANES[8], EXPAND, WIDE[8]),
    bit_equal="k32",
    path=lambda shape: "q4k_gemm_planes_kd8",
)
def planes_kd8(case: Any) -> Callable[[], None]:
    """Staging is 16-byte copies of whole super-blocks."""
    return expanded(case, 8)


MINS = CudaSource(HERE / "6_tensor_mins.cu", ("q4k_gemm_tensor_mins",))
# Expanded weights twice; activations and their scales four times; totals, scales, minimums and dmin twice.
MINS_SHARED = 2 * 64 * 64 + 4 * 128 * (64 + 2 * 4) + 2 * 4 * (8 * (128 + 8) + 8 * 64 + 64 * 12 + 64)


@SPEC.variant(
    "6_tensor_mins",
    idea="64 x 128 tile, ldmatrix, the minimums' part by tensor cores",
    sources=(MINS,),
    path=lambda shape: "q4k_gemm_tensor_mins",
)
def tensor_mins(case: Any) -> Callable[[], None]:
    """A float order of its own: not bit-equal to the other rungs."""
    kernel, args = case.kernel("q4k_gemm_tensor_mins"), (case.inputs["weights"], *arguments(case))
    blocks = -(-case.shape.rows // 64), -(-case.shape.tokens // 128)
    return lambda: kernel(blocks, (256,), args, shared=MINS_SHARED)


SPEC.program("32 greedy tokens")(decoder.program(SPEC.shape, q4k.random_blocks))
