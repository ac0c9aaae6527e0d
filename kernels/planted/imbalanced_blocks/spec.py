"""Planted: a block with four times as much to do as any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="one block four times as long as the others",
    line="",
    states=(plant.NO_WARPS,),
    why="there is one block to a multiprocessor, and all but one of them have nothing to do for most of the time",
    fix="the same tasks spread evenly",
    region="active share",
)
THREADS = 256
SHARED = 120 << 10  # More than half of what a multiprocessor has: a block is alone on it.
SPEC = Specimen(
    name="planted.imbalanced_blocks",
    about=TRUTH.cause,
    shape=Shape(tasks=44 * 135, steps=200),
    sweep=(Shape(tasks=1, steps=1), Shape(tasks=400, steps=5)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Work on each task."""
    total = np.arange(shape.tasks * THREADS, dtype=np.uint32)
    for step in range(shape.steps):
        total = busy.busy(total + np.uint32(step))
    return total.astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """One word for each thread of a task."""
    return (shape.tasks * THREADS,), "uint32"


def call(case: Any) -> Any:
    """Return how the kernels are launched: one block a multiprocessor, with its share of the tasks."""
    shape, blocks = case.shape, case.multiprocessors
    share = -(-shape.tasks // (blocks + 3 * (case.variant.name == "guilty")))
    args = (case.out, np.int32(shape.tasks), np.int32(share), np.int32(shape.steps))
    return plant.Call((blocks,), (THREADS,), args, SHARED)


plant.pair(SPEC, TRUTH, __file__, call)
