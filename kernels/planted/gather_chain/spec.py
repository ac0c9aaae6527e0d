"""Planted: a load whose place another load tells: the first one hits L1, the second one does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="gather through an index",
    line="const unsigned value = big[(at + offset) & (size - 1)];",
    states=("long_scoreboard",),
    why="its place comes from a load, so that it cannot start early, and it leads all over 16 MB, which L1 cannot hold",
    fix="the same value from 4 KB that stay in L1",
    region="gather",
    keeps=True,
)
THREADS = 256
OFFSETS = SMALL = 1024  # as in gather_chain.cu
SPEC = Specimen(
    name="planted.gather_chain",
    about=TRUTH.cause,
    shape=Shape(blocks=132, size=1 << 22, steps=2000),
    sweep=(Shape(blocks=1, size=1024, steps=1), Shape(blocks=3, size=4096, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Offsets in whole lines of 128 bytes; a small table, and a big one that repeats it."""
    small = rng.integers(0, 1 << 32, SMALL, dtype=np.uint32)
    offsets = 32 * rng.integers(0, shape.size // 32, OFFSETS, dtype=np.uint32)
    return {"offsets": offsets, "big": np.tile(small, shape.size // SMALL), "small": small}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Mix what the offsets lead to."""
    threads = shape.blocks * THREADS
    thread = np.arange(threads)
    total = np.zeros(threads, dtype=np.uint32)
    for step in range(shape.steps):
        offset = inputs["offsets"][(thread // 32 + step) % OFFSETS]
        value = inputs["big"][(thread + step * threads + offset) % shape.size]
        total = busy.toil(total, 2) ^ value
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    sizes = (np.int32(case.shape.size), np.int32(case.shape.steps))
    tables = tuple(case.inputs[name] for name in ("offsets", "big", "small"))
    return plant.Call((case.shape.blocks,), (THREADS,), (*tables, case.out, *sizes))


plant.pair(SPEC, TRUTH, __file__, call)
