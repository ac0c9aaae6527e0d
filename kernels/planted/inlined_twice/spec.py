"""Planted: a function inlined at two calls, one of which misses the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="cache misses at one of two calls of an inlined load",
    line="const unsigned far = fetch(table, (at & (size - 32)) + lane);",
    states=("long_scoreboard",),
    why="the other call reads 4 KB, which stay in L1, and this one 16 MB; both wait for the load of the same function",
    fix="the call reads the 4 KB that the table repeats",
    region="far",
    keeps=True,
)
THREADS = 256
SPEC = Specimen(
    name="planted.inlined_twice",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 22, period=1 << 10, steps=3000),
    sweep=(Shape(blocks=1, size=2048, period=64, steps=1), Shape(blocks=3, size=1 << 14, period=1024, steps=19)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """A table of rows of 32 equal words, which repeats itself."""
    period = np.repeat(rng.integers(1 << 32, size=shape.period // 32, dtype=np.uint32), 32)
    return {"table": np.tile(period, shape.size // shape.period)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Look up near and far, in turn."""
    thread = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    lane = thread % np.uint32(32)
    at, total = busy.busy(thread // np.uint32(32)), thread
    for _ in range(shape.steps):
        at = busy.busy(at ^ inputs["table"][(at & np.uint32(shape.period - 32)) + lane])
        at = busy.busy(at + inputs["table"][(at & np.uint32(shape.size - 32)) + lane])
        total = total + at
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    shape = case.shape
    args = (case.inputs["table"], case.out, np.int32(shape.size), np.int32(shape.period), np.int32(shape.steps))
    return plant.Call((shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
