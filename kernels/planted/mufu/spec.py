"""Planted: special functions beyond what their unit takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="special functions beyond what their unit takes",
    line="const unsigned power = __float_as_uint(exponential(t));",
    states=("mio_throttle", "short_scoreboard", "math_pipe_throttle"),
    why="sixteen MUFU keep the unit (4 lanes a scheduler) busy for 128 cycles, all else is issued in 45",
    fix="the exponents, already added up in the low bits of a float, are shifted to their place together",
    region="exponential",
)
# One block an SM: two do not end together, and the schedulers would be left with half of their warps.
THREADS = 512
SPEC = Specimen(
    name="planted.mufu",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=2500),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=17)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Add the powers' bits, step by step."""
    x = np.arange(1, 1 + shape.blocks * THREADS, dtype=np.uint32)
    for _ in range(shape.steps):
        x = busy.busy(x)
        exponents = np.uint32(16) * (x & np.uint32(15)) + np.uint32(sum(range(127, 127 + 16)))
        x = x + (exponents << np.uint32(23))
    return x.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    args = (case.out, np.int32(case.shape.steps))
    return plant.Call((case.shape.blocks,), (THREADS,), args)


plant.pair(SPEC, TRUTH, __file__, call)
