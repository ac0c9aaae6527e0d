"""Planted: arithmetic in double precision beyond what its pipe takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="arithmetic in double precision beyond what its pipe takes",
    line="total[i % 14] = fma(y, i / 14 + 2.0, total[i % 14]);",
    states=("math_pipe_throttle",),
    why="a DFMA keeps the pipe (16 lanes a scheduler) for two cycles; eight warps compete for it, with 14 sums each",
    fix="the words that hold the numbers are added as integers",
    region="double",
)
# One block an SM: two do not end together, and the schedulers would be left with half of their warps.
THREADS, TABLE = 1024, 1 << 16
SPEC = Specimen(
    name="planted.fp64",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=1500),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The table that is looked up."""
    return {"table": rng.integers(1 << 32, size=TABLE, dtype=np.uint32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Look up, and add each number times the sum of all factors, step by step."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32) // np.uint32(32) + np.uint32(1)
    total = np.zeros_like(x)
    for _ in range(shape.steps):
        x = busy.busy(x + inputs["table"][x & np.uint32(TABLE - 1)])
        total += np.uint32(1 << 20) + (x & np.uint32(0xFFFFF))
    return (x + total * np.uint32(14 * (2 + 3 + 4 + 5))).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["table"], case.out, np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
