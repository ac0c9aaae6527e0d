"""Planted: a loop body that does not fit the instruction caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="loop body larger than the instruction caches",
    line="TIMES_6144(key += 0x9e3779b9u; a = (a ^ key) * 0x85ebca6bu; b = (b ^ key) * 0xc2b2ae35u;)",
    states=("no_instruction",),
    why="each pass fetches 393 KB of straight code anew: the caches have room for a third of that",
    fix="the same steps as a loop of 16",
    region="body",
    keeps=True,
)
THREADS, STEPS = 128, 6144
SPEC = Specimen(
    name="planted.instruction_cache",
    about=TRUTH.cause,
    shape=Shape(blocks=132, passes=16, rest=6000),
    sweep=(Shape(blocks=1, passes=1, rest=1), Shape(blocks=3, passes=2, rest=5)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Take the steps of each pass, and the rests of each warp before or after them."""
    a = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    b = ~a
    early = a // np.uint32(32) % np.uint32(4) * np.uint32(shape.rest)
    for rest in range(3 * shape.rest):
        a = np.where(rest < early, busy.busy(a), a)
    for _ in range(shape.passes):
        key = 0
        for _ in range(STEPS):
            key = (key + 0x9E3779B9) % 2**32
            a = (a ^ np.uint32(key)) * np.uint32(0x85EBCA6B)
            b = (b ^ np.uint32(key)) * np.uint32(0xC2B2AE35)
    for rest in range(3 * shape.rest):
        b = np.where(rest < early, b, busy.busy(b))
    return (a + b).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.passes), np.int32(case.shape.rest))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
