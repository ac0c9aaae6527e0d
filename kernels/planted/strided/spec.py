"""Planted: an uncoalesced load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="uncoalesced load",
    line="const unsigned key = records[at * RECORD];",
    states=("long_scoreboard",),
    why="each lane reads a sector of its own, 32 a request, and the 32 bytes of a sector bring one word of use",
    fix="the same words side by side, 4 sectors a request",
    region="key",
    keeps=True,
)
THREADS = 256
RECORD, STRIDE = 40, 32 * 149  # as in strided.cu
SPEC = Specimen(
    name="planted.strided",
    about=TRUTH.cause,
    shape=Shape(blocks=132, count=1 << 14, steps=2000),
    sweep=(Shape(blocks=1, count=1024, steps=1), Shape(blocks=3, count=4096, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Records, and what their first words are."""
    records = rng.integers(0, 1 << 32, (shape.count, RECORD), dtype=np.uint32)
    return {"records": records, "keys": records[:, 0].copy()}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Mix the first words of the records."""
    at = np.arange(shape.blocks * THREADS) % shape.count
    total = np.zeros(at.shape, dtype=np.uint32)
    for _ in range(shape.steps):
        total = busy.toil(total, 3) ^ inputs["records"][at, 0]
        at = (at + STRIDE) % shape.count
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    sizes = (np.int32(case.shape.count), np.int32(case.shape.steps))
    args = (case.inputs["records"], case.inputs["keys"], case.out, *sizes)
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
