"""Planted: a load that misses L1, in a function that is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="dependent loads from L2 in a called function",
    line="return table[row * 32 + lane];",
    states=("long_scoreboard",),
    why="the row to load is the result of the call before, and the table of 16 MB does not fit L1",
    fix="the called function computes the row",
    region="look_up",
)
THREADS = 256
SPEC = Specimen(
    name="planted.call_chain",
    about=TRUTH.cause,
    shape=Shape(blocks=132, rows=1 << 17, steps=3000),
    sweep=(Shape(blocks=1, rows=32, steps=1), Shape(blocks=3, rows=1024, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """The table of successors: one cycle through all rows (Hull and Dobell: 5 = 1 mod 4, 1 odd)."""
    successor = (5 * np.arange(shape.rows, dtype=np.uint32) + 1) & np.uint32(shape.rows - 1)
    return {"table": np.repeat(successor, 32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Walk the table."""
    total = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    lane = total % np.uint32(32)
    row = busy.busy(total // np.uint32(32)) & np.uint32(shape.rows - 1)
    for _ in range(shape.steps):
        row = inputs["table"][row * np.uint32(32) + lane]
        total = busy.toil(total + row, 4)
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["table"], case.out, np.int32(case.shape.rows), np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
