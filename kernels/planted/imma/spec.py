"""Planted: matrix products beyond what the tensor cores take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="matrix products beyond what the tensor cores take",
    line="multiply(sums[i % 7], a, b[i % 7]);",
    states=("math_pipe_throttle",),
    why="eight warps with seven independent sums each compete for a pipe that is busy for several cycles a product",
    fix="an element of the product is 32 times two numbers: one is added up, and multiplied after the loop",
    region="matrix",
)
# One block an SM: two do not end together, and the schedulers would be left with half of their warps.
THREADS, TABLE = 1024, 1 << 16
SPEC = Specimen(
    name="planted.imma",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=1500),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The table that is looked up, and seven numbers, each as all bytes of two words."""
    weights = np.repeat(np.arange(1, 8, dtype=np.uint32) * np.uint32(0x01010101), 2).reshape(-1, 2)
    return {"table": rng.integers(1 << 32, size=TABLE, dtype=np.uint32), "weights": weights}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Look up, and add the thread's elements of all products, step by step."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32) // np.uint32(32) + np.uint32(1)
    weight = np.uint32(2 * 4 * 32) * (inputs["weights"][:, 0] & np.uint32(255)).sum(dtype=np.uint32)
    total = np.zeros_like(x)
    for _ in range(shape.steps):
        x = busy.busy(x + inputs["table"][x & np.uint32(TABLE - 1)])
        total += (x & np.uint32(7)) * weight
    return (x + total).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["table"], case.inputs["weights"], case.out, np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
