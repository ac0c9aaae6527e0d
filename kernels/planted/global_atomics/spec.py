"""Planted: global atomics on one address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="global atomics on one address",
    line="x += atomicAdd(total + (x & none), x & 1) & none;",
    states=("long_scoreboard", "lg_throttle"),
    why="the lanes of the whole grid take turns at one word, and each waits for the old value",
    fix="each thread adds up what is its own, and adds it once",
    region="total",
)
THREADS = 128
SPEC = Specimen(
    name="planted.global_atomics",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=40, work=150),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """What the threads end with; nobody reads the total."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    return busy.toil(x, shape.steps * shape.work).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.array(1, "uint32"), case.out, np.int32(case.shape.steps), np.int32(case.shape.work), np.uint32(0))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
