"""Planted: a second wave of a single block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="a second wave of one block",
    line="",
    states=(plant.NO_WARPS,),
    why="of equal blocks, one to a multiprocessor, there is one more than multiprocessors: all wait for it alone",
    fix="one block less for the same tasks",
    region="active share",
)
THREADS = 256
SHARED = 120 << 10  # More than half of what a multiprocessor has: a block is alone on it.
SPEC = Specimen(
    name="planted.tail_wave",
    about=TRUTH.cause,
    shape=Shape(tasks=132 * 133, steps=100),
    sweep=(Shape(tasks=1, steps=1), Shape(tasks=300, steps=5)),
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
    """Return how the kernels are launched: with a block too many, or one a multiprocessor."""
    blocks = case.multiprocessors + (case.variant.name == "guilty")
    args = (case.out, np.int32(case.shape.tasks), np.int32(case.shape.steps))
    return plant.Call((blocks,), (THREADS,), args, SHARED)


plant.pair(SPEC, TRUTH, __file__, call)
