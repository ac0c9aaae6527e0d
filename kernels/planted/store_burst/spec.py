"""Planted: store burst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="store burst",
    line="place[i * threads] = x + i;",
    states=("lg_throttle", "long_scoreboard"),
    why="sixteen stores follow one another, faster than L2 takes them, and the queue that holds them is full; "
    "what then overwrites a register that a queued store has not read waits for it, as for a load",
    fix="what nobody reads is not stored",
    region="burst",
)
THREADS = 512
BURST, TURNS = 16, 8
SPEC = Specimen(
    name="planted.store_burst",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=800, work=4),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Step by step."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    return busy.toil(x, shape.steps * shape.work).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    log = case.array(TURNS * BURST * case.shape.blocks * THREADS, "uint32")
    args = (log, case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
