"""Planted: a software-pipelined load whose distance, one pass of the loop, is too short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="pipelined load, too short a distance",
    line="value = table[at];",
    states=("long_scoreboard",),
    why="the load is issued one pass early, and a pass has less work than L2 takes to answer",
    fix="the value is computed",
    region="fetch",
)
THREADS = 256
FACTOR = 0x9E3779B1  # as in pipelined.cu
STOP = -1  # no step
SPEC = Specimen(
    name="planted.pipelined",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 22, steps=3000),
    sweep=(Shape(blocks=1, size=1024, steps=1), Shape(blocks=3, size=4096, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The table of products."""
    return {"table": np.arange(shape.size, dtype=np.uint32) * np.uint32(FACTOR)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Mix the values in turn."""
    threads = shape.blocks * THREADS
    total = np.zeros(threads, dtype=np.uint32)
    for step in range(shape.steps):
        value = inputs["table"][(np.arange(threads) + step * threads) % shape.size]
        total = busy.busy(total ^ value)
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    sizes = (np.int32(case.shape.size), np.int32(case.shape.steps), np.int32(STOP))
    return plant.Call((case.shape.blocks,), (THREADS,), (case.inputs["table"], case.out, *sizes))


plant.pair(SPEC, TRUTH, __file__, call)
