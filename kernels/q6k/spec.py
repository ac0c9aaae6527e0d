"""C[token][row] = sum over k of W[row][k] * A[token][k], W in q6_K, A int8 with a scale for each 32: one idea per rung.

Rungs that must agree to the bit do their float arithmetic in one order: for each 16 of k,
acc = fma(dot, (d * scale) * a_scale, acc), where dot is exact. The pitch between blocks changes how they
load, not what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.model import Work
from profiler.specimen import CudaSource, Shape, Specimen

q6k = neighbour(__file__, "../formats/q6k.py")
q8 = neighbour(__file__, "../formats/q8.py")
decoder = neighbour(__file__, "../formats/decoder.py")

HERE = Path(__file__).parent
TILE_TOKENS, TILE_ROWS, THREADS = 64, 128, 256
FOLDED_ROWS = 64
TILE_BYTES = TILE_ROWS * (64 + 4 * 4)  # of the expanded plane: 64 k and their four scales
BYTE_ARM, WIDE_ARM = 1, 2  # what a kernel writes to the witness
ROWS_AT_ONCE = 512  # of the reference, to bound its memory

SPEC = Specimen(
    name="q6k",
    about="q6_K weights times int8 activations on int8 tensor cores",
    shape=Shape(tokens=2630, rows=3584, k=3584, pitch=224),
    sweep=(
        Shape(tokens=1, rows=1, k=256, pitch=210),
        Shape(tokens=1, rows=1, k=256, pitch=224),
        Shape(tokens=7, rows=130, k=512, pitch=210),
        Shape(tokens=7, rows=130, k=512, pitch=224),
        Shape(tokens=65, rows=128, k=2048, pitch=210),
        Shape(tokens=65, rows=128, k=2048, pitch=224),
        Shape(tokens=129, rows=577, k=768, pitch=210),
        Shape(tokens=129, rows=577, k=768, pitch=224),
        Shape(tokens=300, rows=384, k=1280, pitch=210),
        Shape(tokens=300, rows=384, k=1280, pitch=240),
    ),
    tolerance=1e-6,
    layout=("pitch",),
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Random blocks at the shape's pitch and quantised random activations; the values do not depend on the pitch."""
    blocks = q6k.random_blocks(shape.rows * (shape.k // q6k.BLOCK), rng)
    a_q, a_scale, _ = q8.quantise(rng.standard_normal((shape.tokens, shape.k), dtype=np.float32))
    return {"weights": q6k.to_pitch(blocks, shape.pitch), "a_q": a_q, "a_scale": a_scale}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The float64 product of the decoded weights and activations, [tokens][rows]."""
    blocks = inputs["weights"].reshape(shape.rows, shape.k // q6k.BLOCK, shape.pitch)
    activations = q8.dequantise(inputs["a_q"], inputs["a_scale"])
    out = np.empty((shape.tokens, shape.rows))
    for first in range(0, shape.rows, ROWS_AT_ONCE):
        rows = blocks[first : first + ROWS_AT_ONCE]
        decoded = q6k.decode(rows.reshape(-1, shape.pitch)).reshape(len(rows), shape.k)
        out[:, first : first + ROWS_AT_ONCE] = activations @ decoded.T
    return out


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """float32 [tokens][rows]."""
    return (shape.tokens, shape.rows), "float32"


@SPEC.work
def work(shape: Shape) -> Work:
    """Multiply-accumulates: tokens * rows * k."""
    return Work.gemm(shape.tokens, shape.rows, shape.k)


def tiles(shape: Shape) -> tuple[int, int]:
    """Return the grid: blocks along tokens and along rows."""
    return -(-shape.tokens // TILE_TOKENS), -(-shape.rows // TILE_ROWS)


def sizes(shape: Shape) -> tuple[Any, ...]:
    """Return the sizes as kernels take them: tokens, rows, k, pitch."""
    return tuple(np.int32(shape[name]) for name in ("tokens", "rows", "k", "pitch"))


def source(name: str, *entries: str) -> tuple[CudaSource, ...]:
    """Return the rung's file and its kernels."""
    return (CudaSource(HERE / f"{name}.cu", entries),)


def arm(shape: Shape) -> int:
    """Return which arm a kernel with wide loads must take: the wide one where blocks are 16-byte aligned."""
    return WIDE_ARM if shape.pitch % 16 == 0 else BYTE_ARM


def rung(name: str, idea: str, path: Callable[[Shape], int], shared: int = 0) -> None:
    """Declare a rung that works on the weights as they are stored; ``shared`` bytes of dynamic shared memory."""

    @SPEC.variant(name, idea=idea, sources=source(name, "q6k_gemm"), bit_equal="k16", path=path)
    def prepare(case: Any) -> Callable[[], None]:
        kernel, grid = case.kernel("q6k_gemm"), tiles(case.shape)
        given = case.inputs
        args = (given["weights"], given["a_q"], given["a_scale"], case.out, *sizes(case.shape), case.witness)
        return lambda: kernel(grid, (THREADS,), args, shared=shared)


rung("1_bytes", "raw bytes, one shared buffer", lambda shape: BYTE_ARM)
rung("2_double_buffer", "two buffers, stages of 64 k", lambda shape: BYTE_ARM)
rung("3_three_blocks", "a third resident block", lambda shape: BYTE_ARM)
rung("4_wide_loads", "16-byte loads of weights", arm)
rung("5_wide_scales", "four scales in one load", arm)
rung("6_cp_async", "weights and activations copied asynchronously", arm, shared=66560)


@SPEC.variant(
    "7_expanded_plane", idea="weights expanded once, at load time",
    sources=source("7_expanded_plane", "q6k_gemm", "q6k_expand"), bit_equal="k16", path=lambda shape: "q6k_gemm",
)  # fmt: skip
def expanded_plane(case: Any) -> Callable[[], None]:
    """Expand the weights to tiles of int8 and float scales, 1.25 bytes a weight; a launch reads only those."""
    shape, given = case.shape, case.inputs
    stages, (along_tokens, along_rows) = shape.k // 64, tiles(shape)
    plane = case.array((along_rows, stages, TILE_BYTES), "uint8")
    tokens, rows, k, pitch = sizes(shape)
    case.kernel("q6k_expand")((stages, along_rows), (THREADS,), (given["weights"], plane, rows, k, pitch))
    kernel = case.kernel("q6k_gemm")
    args = (plane, given["a_q"], given["a_scale"], case.out, tokens, rows, k)
    return lambda: kernel((along_tokens, along_rows), (THREADS,), args)


FOLDED = tuple(
    CudaSource(HERE / "8_folded_scales.cu", (f"q6k_gemm_folded_{tokens}",), (f"-DTOKENS={tokens}",))
    for tokens in (128, 192)
)


def folded_shared(tile: int) -> int:
    """Return rung 8's bytes of shared memory: two planes twice, activations and scales four times, d twice."""
    return 2 * 2 * FOLDED_ROWS * 64 + 4 * tile * (64 + 2 * 4) + 2 * FOLDED_ROWS * 4


def folded_tile(shape: Shape, processors: int) -> int:
    """Return the tokens of a tile that leave the least idle in the last wave: 128 with two blocks resident, or 192."""

    def cost(tile: int, resident: int) -> int:
        blocks = -(-shape.tokens // tile) * -(-shape.rows // FOLDED_ROWS)
        return -(-blocks // (resident * processors)) * resident * tile

    return 128 if cost(128, 2) <= cost(192, 1) else 192


@SPEC.variant(
    "8_folded_scales", idea="scales folded into two int8 planes, one rescale for 32 k", sources=FOLDED, path=arm
)
def folded(case: Any) -> Callable[[], None]:
    """A float order of its own: not bit-equal to the other rungs."""
    shape, given = case.shape, case.inputs
    tile = folded_tile(shape, case.multiprocessors)
    kernel = case.kernel(f"q6k_gemm_folded_{tile}")
    args = (given["weights"], given["a_q"], given["a_scale"], case.out, *sizes(shape), case.witness)
    blocks = -(-shape.rows // FOLDED_ROWS), -(-shape.tokens // tile)
    return lambda: kernel(blocks, (2 * tile,), args, shared=folded_shared(tile))


def pitched(pitch: int) -> Callable[[np.random.Generator, int, int], np.ndarray]:
    """Return what makes random weights for the decoder at a pitch."""
    return lambda rng, rows, k: q6k.to_pitch(q6k.random_blocks(rows * (k // q6k.BLOCK), rng), pitch)


# The same model in both layouts: what differs between them in a variant shows in the tokens.
for layout in (210, 224):
    SPEC.program(f"32 greedy tokens, pitch {layout}")(decoder.program(SPEC.shape.but(pitch=layout), pitched(layout)))
