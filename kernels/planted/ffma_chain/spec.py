"""Planted: a chain of dependent multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="a chain of dependent multiply-adds",
    line="f = fmaf(f, scale, b);",
    states=("wait",),
    why="each of the 24 takes the result of the one before, four cycles later, and two warps cannot fill them",
    fix="with a scale of one the chain adds 24 times the same number: one multiplication",
    region="chain",
)
THREADS = 128
SPEC = Specimen(
    name="planted.ffma_chain",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=6000),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Add the bits of 25 times the number, step by step."""
    total = np.arange(1, 1 + shape.blocks * THREADS, dtype=np.uint32)
    for _ in range(shape.steps):
        total = busy.busy(total)
        total += ((total & np.uint32(0xFFFF)).astype(np.float32) * np.float32(25)).view(np.uint32)
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.float32(1), np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
