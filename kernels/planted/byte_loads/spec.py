"""Planted: sixteen loads of a byte where one load of 16 bytes would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="byte loads",
    line="byte[i] = piece[i];",
    states=("long_scoreboard", "lg_throttle"),
    why="a load of one byte a lane touches the same four lines of L1 as a load of 16 bytes, and there are sixteen",
    fix="one load of 16 bytes",
    region="load",
)
THREADS = 256
STRIDE = 32 * 37  # as in byte_loads.cu
SPEC = Specimen(
    name="planted.byte_loads",
    about=TRUTH.cause,
    shape=Shape(blocks=264, pieces=2048, steps=1000),
    sweep=(Shape(blocks=1, pieces=256, steps=1), Shape(blocks=3, pieces=1024, steps=17)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Any bytes."""
    return {"table": rng.integers(0, 256, 16 * shape.pieces, dtype=np.uint8)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Fold each piece to a word, and mix these."""
    words = np.bitwise_xor.reduce(inputs["table"].view("<u4").reshape(-1, 4), axis=1)
    at = np.arange(shape.blocks * THREADS) % shape.pieces
    total = np.zeros(at.shape, dtype=np.uint32)
    for _ in range(shape.steps):
        total = total ^ words[at]
        for _ in range(4):
            total = busy.busy(total)
        at = (at + STRIDE) % shape.pieces
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.inputs["table"], case.out, np.int32(case.shape.pieces), np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
