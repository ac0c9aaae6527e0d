"""Planted: shuffles in the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="shuffles in the loop",
    line="part += __shfl_xor_sync(~0u, part, bit);",
    states=("short_scoreboard",),
    why="each of five shuffles waits for the one before it",
    fix="each lane adds up what is its own, and the lanes once",
    region="sum",
)
THREADS = 128
SPEC = Specimen(
    name="planted.shuffle_reduce",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2000, work=2),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The sum over each warp and all steps, modulo 2^32."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    total = np.zeros_like(x)
    for _ in range(shape.steps):
        x = busy.toil(x, shape.work)
        total += x
    return np.repeat(total.reshape(-1, 32).sum(axis=1, dtype=np.uint32), 32).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps), np.int32(case.shape.work), np.uint32(0))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
