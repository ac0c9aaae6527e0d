"""Quantising activations: float32 [tokens][k] -> int8 with one scale and one total per 32 values (formats/q8.py).

The output is one run of bytes, q then scale then total, and must equal NumPy's to the last bit: the tolerance is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import CudaSource, Shape, Specimen

q8 = neighbour(__file__, "../formats/q8.py")

QUANTISE = CudaSource(Path(__file__).parent / "quantise.cu", ("q8_plain", "q8_vector"))
TOKENS, CHUNKS = 32, 4  # of one block of q8_vector

SPEC = Specimen(
    name="q8",
    about="float32 activations to int8, a scale and a total per 32 values",
    shape=Shape(tokens=2630, k=3584),
    sweep=(
        Shape(tokens=1, k=32),
        Shape(tokens=1, k=3584),
        Shape(tokens=7, k=96),
        Shape(tokens=31, k=256),
        Shape(tokens=32, k=128),
        Shape(tokens=33, k=160),
        Shape(tokens=129, k=1056),
        Shape(tokens=300, k=2048),
    ),
    tolerance=0.0,
)


def parts(shape: Shape) -> tuple[slice, slice, slice]:
    """Return where q, scale and total lie in the output, in bytes."""
    values, plane = shape.tokens * shape.k, shape.tokens * (shape.k // q8.CHUNK) * 4
    return slice(0, values), slice(values, values + plane), slice(values + plane, values + 2 * plane)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Activations of very different sizes, some chunks all zero, some values halfway between two codes."""
    x = rng.standard_normal((shape.tokens, shape.k // q8.CHUNK, q8.CHUNK), dtype=np.float32)
    x *= np.exp2(rng.integers(-20, 20, size=x.shape[:2])).astype(np.float32)[:, :, None]
    x[rng.random(x.shape[:2]) < 0.05] = 0
    # With 127 as the largest of its chunk, a value of n + 0.5 is rounded half to even.
    halves = rng.random(x.shape[:2]) < 0.05
    x[halves] = rng.integers(-127, 127, size=(int(halves.sum()), q8.CHUNK)).astype(np.float32) + np.float32(0.5)
    x[halves, 0] = 127
    return {"x": x.reshape(shape.tokens, shape.k)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """What NumPy makes of it, byte by byte."""
    q, scale, total = q8.quantise(inputs["x"])
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in (q, scale, total)]).astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """The bytes of q, scale and total, one after another."""
    return (parts(shape)[-1].stop,), "uint8"


def arguments(case: Any) -> tuple[Any, ...]:
    """Return what both kernels take."""
    q, scale, total = (case.out[part] for part in parts(case.shape))
    return (case.inputs["x"], q, scale, total, np.int32(case.shape.tokens), np.int32(case.shape.k))


@SPEC.variant("1_plain", idea="one thread a chunk", sources=(QUANTISE,), bit_equal="q8", path=lambda shape: "q8_plain")
def plain(case: Any) -> Callable[[], None]:
    """A thread walks its 32 values twice."""
    kernel, args = case.kernel("q8_plain"), arguments(case)
    chunks = case.shape.tokens * (case.shape.k // q8.CHUNK)
    return lambda: kernel((-(-chunks // 128),), (128,), args)


@SPEC.variant(
    "2_vector",
    idea="eight threads a chunk, 16-byte loads, planes through shared memory",
    sources=(QUANTISE,),
    bit_equal="q8",
    path=lambda shape: "q8_vector",
)
def vector(case: Any) -> Callable[[], None]:
    """A warp reads four chunks of a token at once."""
    kernel, args = case.kernel("q8_vector"), arguments(case)
    grid = (-(-case.shape.k // q8.CHUNK // CHUNKS), -(-case.shape.tokens // TOKENS))
    return lambda: kernel(grid, (256,), args)
