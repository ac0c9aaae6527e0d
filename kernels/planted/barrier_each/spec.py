"""Planted: a barrier in every step that no data needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="needless barrier in every step",
    line="__syncthreads();",
    states=("barrier",),
    why="another warp is the slowest in every step, and all wait for it, though all have the same work in the end",
    fix="no barrier",
    region="barrier",
)
THREADS, ROUND = 256, 16
SPEC = Specimen(
    name="planted.barrier_each",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=960),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=37)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


def pieces(warp: np.ndarray, step: int) -> np.ndarray:
    """Return how much a warp has to do in a step."""
    start = busy.busy(warp + np.uint32(step // ROUND)) >> np.uint32(7)
    count: np.ndarray = (np.uint32(step) * (2 * warp + np.uint32(1)) + start) % np.uint32(ROUND)
    return count


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Stir each thread's state as often as its warp has pieces of work."""
    state = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    for step in range(shape.steps):
        count = pieces(np.arange(state.size, dtype=np.uint32) // 32, step)
        for done in range(ROUND - 1):
            state = np.where(done < count, busy.busy(state), state)
    return state.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    return plant.Call((case.shape.blocks,), (THREADS,), (case.out, np.int32(case.shape.steps)))


plant.pair(SPEC, TRUTH, __file__, call)
