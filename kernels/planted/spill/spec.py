"""Planted: spilled array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="spilled array",
    line="at = slots[at % SLOTS];",
    states=("long_scoreboard",),
    why="the index of each read from local memory is the result of the read before it",
    fix="the slot is computed",
    region="slots",
)
THREADS = 128
SLOTS, READS, FACTOR, SUMMAND = 64, 4, 5, 3
SPEC = Specimen(
    name="planted.spill",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2000, work=2),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """What the slots hold."""
    return {"table": np.arange(SLOTS, dtype=np.uint32) * np.uint32(FACTOR) + np.uint32(SUMMAND)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Step by step."""
    thread = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    at, total = thread % np.uint32(THREADS) // np.uint32(32), thread
    for _ in range(shape.steps):
        for _ in range(READS):
            at = at % np.uint32(SLOTS) * np.uint32(FACTOR) + np.uint32(SUMMAND)
        total = busy.toil(total + at, shape.work)
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (
        case.inputs["table"],
        case.out,
        np.int32(case.shape.steps),
        np.int32(case.shape.work),
        np.uint32(FACTOR),
        np.uint32(SUMMAND),
    )
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
