"""Planted: a dense series of branches that all lanes take alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="a dense series of uniform branches",
    line="if (flags >> bit & 1) sum += FOUR_TIMES(word, bit + 1);",
    states=("wait", "branch_resolving"),
    why="in each step a warp jumps over five rare cases: their BSSY, BRA and BSYNC have fixed latencies",
    fix="each case is computed, in its closed form, and masked",
    region="cases",
)
THREADS = 128
SPEC = Specimen(
    name="planted.uniform_branches",
    about=TRUTH.cause,
    shape=Shape(blocks=132, steps=4000),
    sweep=(Shape(blocks=1, steps=1), Shape(blocks=3, steps=200)),
    tolerance=0.0,
)


plant.no_inputs(SPEC)


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Add the cases whose bits are set, each four steps long."""
    total = np.arange(shape.blocks * THREADS, dtype=np.uint32)
    word = total // np.uint32(32)
    for step in range(shape.steps):
        word = busy.toil(word + np.uint32(step), 2)
        flags = word.copy()
        for shift in (6, 12, 18, 24):
            flags &= word >> np.uint32(shift)
        for bit in range(5):
            case = word
            for _ in range(4):
                case = case ^ (case >> np.uint32(bit + 1))
            total = np.where(flags >> np.uint32(bit) & np.uint32(1), total + case, total)
    return total.astype(np.float64)


plant.word_a_thread(SPEC, THREADS)


def call(case: Any) -> Any:
    """Return how either kernel is launched."""
    return plant.Call((case.shape.blocks,), (THREADS,), (case.out, np.int32(case.shape.steps)))


plant.pair(SPEC, TRUTH, __file__, call)
