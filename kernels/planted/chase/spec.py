"""Planted: a dependent pointer chase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="dependent pointer chase",
    line="at = next[at];",
    states=("long_scoreboard",),
    why="the address of a load is the result of the load before it, so their latencies add up",
    fix="the next place is computed",
    region="chase",
)
THREADS = 128
STRIDE = 32 * 1237  # as in chase.cu
SPEC = Specimen(
    name="planted.chase",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 20, steps=1500),
    sweep=(Shape(blocks=1, size=1024, steps=1), Shape(blocks=3, size=4096, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The table of successors: as the lines of 128 bytes are a power of two in number, all are visited in turn."""
    return {"next": (np.arange(shape.size, dtype=np.uint32) + np.uint32(STRIDE)) & np.uint32(shape.size - 1)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Walk the table."""
    at = np.arange(shape.blocks * THREADS, dtype=np.uint32) & np.uint32(shape.size - 1)
    total = np.zeros_like(at)
    for _ in range(shape.steps):
        at = inputs["next"][at]
        total = busy.busy(total + busy.busy(at))
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["next"], case.out, np.int32(case.shape.size), np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
