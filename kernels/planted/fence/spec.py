"""Planted: memory fence in the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="memory fence in the loop",
    line="__threadfence();",
    states=("membar", "long_scoreboard"),
    why="a fence waits for every store before it, and nothing else does",
    fix="no fence: nobody else reads",
    region="fence",
)
THREADS = 128
SPEC = Specimen(
    name="planted.fence",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=600, work=10),
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
    args = (case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
