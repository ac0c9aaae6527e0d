"""Planted: shared atomics on one address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="shared atomics on one address",
    line="x += atomicAdd(word, x) & none;",
    states=("short_scoreboard", "mio_throttle"),
    why="the lanes of all warps of a block take turns at one word, and each waits for the old value",
    fix="each thread adds up what is its own, and adds it once",
    region="total",
)
THREADS = 128
SPEC = Specimen(
    name="planted.shared_atomics",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2000, work=2),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=3, steps=17, work=2)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Add everything up, modulo 2^32."""
    x = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    total = np.zeros(shape.blocks, dtype=np.uint32)
    for _ in range(shape.steps):
        x = busy.toil(x, shape.work)
        total += x.reshape(shape.blocks, THREADS).sum(axis=1, dtype=np.uint32)
    return total.astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """The total of each block."""
    return (shape.blocks,), "uint32"


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps), np.int32(case.shape.work), np.uint32(0))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
