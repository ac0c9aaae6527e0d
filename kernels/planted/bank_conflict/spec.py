"""Planted: shared-memory bank conflict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="shared-memory bank conflict",
    line="read[i] = tile[lane * SIDE + (step + i) % SIDE];",
    states=("short_scoreboard", "mio_throttle"),
    why="lanes are 32 words apart, so all meet in one of the 32 banks",
    fix="lanes are one word apart",
    region="tile",
    keeps=True,
)
THREADS = 128
SIDE, READS = 32, 4
SPEC = Specimen(
    name="planted.bank_conflict",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2000, work=3),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=37, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Step by step."""
    thread = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    values = busy.busy(np.arange(SIDE, dtype=np.uint32))
    total = thread
    for step in range(shape.steps):
        total = busy.toil(total, shape.work)
        for i in range(READS):
            total = total + values[thread % np.uint32(32)] + values[(step + i) % SIDE]
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
