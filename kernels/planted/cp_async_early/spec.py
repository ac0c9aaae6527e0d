"""Planted: an asynchronous copy that is waited for at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="cp.async waited for at once",
    line="copy_async(tile + 4 * lane, from + 4 * lane);",
    states=("long_scoreboard",),
    why="the copy takes a trip to L2, and the warp waits for it before work that does not need it",
    fix="the wait comes after the work, which takes longer than the copy",
    region="tile",
    keeps=True,
)
THREADS, TILE = 128, 128
SPEC = Specimen(
    name="planted.cp_async_early",
    about=TRUTH.cause,
    shape=Shape(blocks=264, tiles=4096, steps=1000, work=6),
    sweep=(Shape(blocks=1, tiles=64, steps=1, work=1), Shape(blocks=3, tiles=16, steps=19, work=4)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Tiles of 128 words, a power of two of them, small enough to stay in L2."""
    return {"table": rng.integers(0, 1 << 32, size=shape.tiles * TILE, dtype=np.uint32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Add up one word of each tile, and stir the state."""
    table = inputs["table"].reshape(shape.tiles, 4, 32)
    state = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    warp, lane = np.divmod(np.arange(state.size), 32)
    total = np.zeros_like(state)
    for step in range(shape.steps):
        total += table[(warp + 5 * step) % shape.tiles, step % 4, lane]
        for _ in range(shape.work):
            state = busy.busy(state)
    return (state + total).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    shape = case.shape
    args = (case.inputs["table"], case.out, np.int32(shape.tiles), np.int32(shape.steps), np.int32(shape.work))
    return plant.Call((shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
