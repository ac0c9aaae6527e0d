"""Planted: integer division by a number known at run time only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="integer division by a number known at run time only",
    line="const unsigned row = sum / width;",
    states=("short_scoreboard", "wait"),
    why="the quotient takes three instructions of the special-function unit and a dozen others, one after another",
    fix="the width is a power of two: a shift",
    region="divide",
)
THREADS, BITS = 128, 5
SPEC = Specimen(
    name="planted.integer_division",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=5000),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Divide, step by step."""
    total = np.arange(1, 1 + shape.blocks * THREADS, dtype=np.uint32)
    for _ in range(shape.steps):
        total = busy.busy(total)
        row, column = np.divmod(total, np.uint32(1 << BITS) << (total & np.uint32(1)))
        total += row * np.uint32(31) + column
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.uint32(1 << BITS), np.uint32(BITS), np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
