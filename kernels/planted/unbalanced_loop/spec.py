"""Planted: a loop that is much longer for some warps than for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="unbalanced loop",
    line="x = x / 1000 * 1000 / 500 * 500 / 250 * 250 / 125 * 125;",
    states=("barrier",),
    why="the longest loop has 17 trips, the mean one 5, and all warps wait at the barrier for the longest",
    fix="all warps loop as long as the shortest, which changes no result",
    region="loop",
)
THREADS, WARPS = 256, 8
SPEC = Specimen(
    name="planted.unbalanced_loop",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=1000, work=5),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=19, work=2)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The trips of each warp: 1, 1, 1, 2, 3, 5, 9, 17."""
    return {"trips": 1 + (1 << np.arange(WARPS, dtype=np.int32)) // 8}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Round down, as often as a warp does it, and hand over to the warp before."""
    state = np.arange(shape.blocks * THREADS, dtype=np.uint32).reshape(shape.blocks, WARPS, 32)
    for _ in range(shape.steps):
        x = state.copy()
        for warp, trips in enumerate(inputs["trips"]):
            for _ in range(trips):
                x[:, warp] = x[:, warp] // np.uint32(1000) * np.uint32(1000)
        state = state + np.roll(x, -1, axis=1)
        for _ in range(shape.work):
            state = busy.busy(state)
    return state.reshape(-1).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["trips"], case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
