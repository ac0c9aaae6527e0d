"""Planted: a warpgroup matrix product that is waited for at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="wgmma waited for at once",
    line="multiply(sum, left, right);",
    states=("barrier", "gmma"),
    why="the only warps of an SM wait for its tensor cores before they go on with work that needs no product (an H200 "
    "counts wgmma.wait_group as barrier, and the wait for room in the tensor cores' queue as gmma)",
    fix="the wait comes after the work, which takes longer than the product",
    region="product",
    keeps=True,
)
THREADS = 128
# Of m64n256k32: what a thread holds of the sums, and how many products are added in a step.
SUMS, DEPTH, PRODUCTS = 128, 32, 2
SPEC = Specimen(
    name="planted.wgmma_wait",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=1500, work=5),
    sweep=(Shape(blocks=1, steps=1, work=1), Shape(blocks=7, steps=19, work=4)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """All values of an operand are the same, so that every sum grows by depth times both of them."""
    state = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    a = state // np.uint32(THREADS) % np.uint32(5) + np.uint32(1)
    for _ in range(shape.steps * shape.work):
        state = busy.busy(state)
    return (state + a * np.uint32(3 * DEPTH * PRODUCTS * SUMS * shape.steps)).astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    return plant.Call(
        (case.shape.blocks,), (THREADS,), (case.out, np.int32(case.shape.steps), np.int32(case.shape.work))
    )


plant.pair(SPEC, TRUTH, __file__, call)
