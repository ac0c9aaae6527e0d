"""Planted: most lanes of every warp without work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="most lanes of every warp without work",
    line="if (lane < 4) {",
    states=(plant.IDLE_LANES,),
    why="four of 32 lanes go through what follows, and it takes the issue slots of a full warp",
    fix="every eighth step, all lanes take an item each",
    region="items",
)
THREADS, ROUNDS = 512, 4
SPEC = Specimen(
    name="planted.half_lanes",
    about=TRUTH.cause,
    shape=Shape(blocks=264, steps=1200),
    sweep=(Shape(blocks=1, steps=8), Shape(blocks=3, steps=24)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """What the items of a warp weigh, and a step for each thread."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    item = np.arange(x.size // 32 * shape.steps * 4, dtype=np.uint32)
    for left in range(shape.steps, 0, -1):
        x = busy.busy(x + np.uint32(left))
    for i in range(ROUNDS):
        item = busy.busy(item + np.uint32(i))
    weight = item.reshape(x.size // 32, -1).sum(axis=1, dtype=np.uint32)
    return (x + np.repeat(weight, 32)).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
