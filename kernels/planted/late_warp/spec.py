"""Planted: one warp that comes late to every barrier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="one late warp",
    line="value = value * factor + term;",
    states=("barrier",),
    why="seven warps of eight wait at the barrier for the one that has the chain to do",
    fix="the late warp takes the chain's known result",
    region="chain",
)
THREADS, CHAIN, WORK = 256, 96, 3
FACTOR, TERM = 1664525, 1013904223
SPEC = Specimen(
    name="planted.late_warp",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=1200),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=18)),
    tolerance=0.0,
)


def far() -> tuple[int, int]:
    """Return factor and term of the whole chain, modulo 2**32."""
    factor, term = 1, 0
    for _ in range(CHAIN):
        factor, term = factor * FACTOR % (1 << 32), (term * FACTOR + TERM) % (1 << 32)
    return factor, term


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Walk the chain of the first warp of each block."""
    state = np.arange(shape.blocks * THREADS, dtype=np.uint32).reshape(shape.blocks, -1, 32)
    value = state[:, :1].copy()
    for _ in range(shape.steps):
        for _ in range(CHAIN):
            value = value * np.uint32(FACTOR) + np.uint32(TERM)
        state = state + value
        for _ in range(WORK):
            state = busy.busy(state)
    return state.reshape(-1).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    words = tuple(np.uint32(word) for word in (FACTOR, TERM, *far()))
    return plant.Call((case.shape.blocks,), (THREADS,), (case.out, np.int32(case.shape.steps), *words))


plant.pair(SPEC, TRUTH, __file__, call)
