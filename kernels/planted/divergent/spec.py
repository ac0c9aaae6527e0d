"""Planted: both sides of a branch in every warp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="both sides of a branch in every warp",
    line="if ((element ^ step) & 1) {",
    states=(plant.IDLE_LANES,),
    why="neighbouring lanes take different sides, of the same length, and a warp goes through one after the other",
    fix="a warp has elements of one kind only",
    region="kinds",
)
THREADS, ROUNDS = 512, 8
SPEC = Specimen(
    name="planted.divergent",
    about=TRUTH.cause,
    shape=Shape(blocks=264, steps=500),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Both sides, and the one that counts."""
    element = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    x = element
    for step in range(shape.steps):
        x = busy.busy(x + np.uint32(step))
        first, second = x, x
        for i in range(ROUNDS, 0, -1):
            first = busy.busy(first + np.uint32(i))
            second = busy.busy(second ^ np.uint32(i))
        x = np.where((element ^ np.uint32(step)) & np.uint32(1), first, second)
    return x.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
