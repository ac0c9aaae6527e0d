"""Planted: one instruction waits for two loads, of which only the first misses L1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="L1 miss beside an L1 hit",
    line="const unsigned far = big[at];",
    states=("long_scoreboard",),
    why="of the two loads that one instruction waits for, this one walks 16 MB, and the other one stays within 4 KB",
    fix="the same value from the 4 KB that stay in L1",
    region="far",
    keeps=True,
    joint=True,
)
THREADS = 256
SMALL = 1024  # as in two_loads_l1.cu
STOP = -1  # no step
SPEC = Specimen(
    name="planted.two_loads_l1",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 22, steps=2000),
    sweep=(Shape(blocks=1, size=1024, steps=1), Shape(blocks=3, size=4096, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """A small table, and a big one that repeats it."""
    small = rng.integers(0, 1 << 32, SMALL, dtype=np.uint32)
    return {"big": np.tile(small, shape.size // SMALL), "small": small}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Mix what both loads find."""
    threads = shape.blocks * THREADS
    thread = np.arange(threads)
    total = np.zeros(threads, dtype=np.uint32)
    for step in range(shape.steps):
        far = inputs["big"][(thread + step * threads) % shape.size]
        near = inputs["small"][(thread + 32 * step + SMALL // 2) % SMALL]
        total = busy.busy(busy.busy(total ^ far ^ near))
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    sizes = (np.int32(case.shape.size), np.int32(case.shape.steps), np.int32(STOP))
    args = (case.inputs["big"], case.inputs["small"], case.out, *sizes)
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
