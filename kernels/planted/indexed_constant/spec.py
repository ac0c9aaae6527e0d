"""Planted: indexed constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="indexed constant memory",
    line="x ^= table[x % 64];",
    states=("short_scoreboard", "imc_miss"),
    why="the constant cache serves one address at a time, and the lanes ask for about 25 different ones",
    fix="the entry is computed",
    region="table",
)
THREADS = 128
SPEC = Specimen(
    name="planted.indexed_constant",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2000, work=2),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Step by step."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    for _ in range(shape.steps):
        x = busy.toil(x ^ (x % np.uint32(64) * np.uint32(0x9E3779B1)), shape.work)
    return x.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
