"""Planted: one instruction waits for two loads that both miss L1, of which only the first misses L2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="L2 miss beside an L2 hit",
    line="const unsigned far = __ldcg(scratch + at);",
    states=("long_scoreboard",),
    why="of the two loads that one instruction waits for, this one walks 256 MB once, and the other one stays in 4 MB",
    fix="the same value from 4 MB that stay in L2",
    region="far",
    keeps=True,
    joint=True,
    known="Both loads miss L1, and such loads return in order: the near one, issued last, ends with the far one "
    "whichever is waited for first, so its own latency, which the twin is left with, never shows. The ceiling holds.",
)
THREADS = 256
NEAR = 1 << 20  # as in two_loads_l2.cu
STOP = -1  # no step
SPEC = Specimen(
    name="planted.two_loads_l2",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 26, steps=1900),
    sweep=(Shape(blocks=1, size=1 << 12, steps=1), Shape(blocks=3, size=1 << 21, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """What is read beside the zeros."""
    return {"table": rng.integers(0, 1 << 32, NEAR, dtype=np.uint32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Mix what both loads find: one of them finds zeros."""
    threads = shape.blocks * THREADS
    total = np.zeros(threads, dtype=np.uint32)
    for step in range(shape.steps):
        at = (np.arange(threads) + step * threads) % shape.size
        total = busy.busy(busy.busy(total ^ inputs["table"][at % NEAR]))
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    scratch = case.array(case.shape.size, "uint32")
    scratch.fill(0)
    sizes = (np.int32(case.shape.size), np.int32(case.shape.steps), np.int32(STOP))
    return plant.Call((case.shape.blocks,), (THREADS,), (scratch, case.inputs["table"], case.out, *sizes))


plant.pair(SPEC, TRUTH, __file__, call)
