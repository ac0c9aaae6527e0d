"""Planted: too few warps to cover the latency of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

plant = neighbour(__file__, "../plant.py")
busy = neighbour(__file__, "../busy.py")

TRUTH = plant.Truth(
    cause="too few warps to cover a load's latency",
    line="const unsigned value = table[(at & (size - 32)) + task % 32];",
    states=("long_scoreboard",),
    why="a scheduler has four warps, each of which waits for each of its loads from L2 before it goes on",
    fix="the same tasks for four times as many threads",
    region="active warps",
)
# Blocks a multiprocessor, threads a block: 4 and 16 warps a scheduler, which holds 16.
SHAPES = {"guilty": (1, 512), "fixed": (2, 1024)}
SPEC = Specimen(
    name="planted.few_warps",
    about=TRUTH.cause,
    shape=Shape(tasks=132 * 2048, size=1 << 22, steps=600),
    sweep=(Shape(tasks=1, size=1024, steps=1), Shape(tasks=1000, size=4096, steps=7)),
    tolerance=0.0,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """A table of rows of 32 equal words."""
    return {"table": np.repeat(rng.integers(1 << 32, size=shape.size // 32, dtype=np.uint32), 32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """Walk the table for each task."""
    task = np.arange(shape.tasks, dtype=np.uint32)
    at = busy.busy(task // np.uint32(32))
    for _ in range(shape.steps):
        at = (at ^ inputs["table"][(at & np.uint32(shape.size - 32)) + task % np.uint32(32)]) * np.uint32(0x85EBCA6B)
    return (at + task).astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """One word a task."""
    return (shape.tasks,), "uint32"


def call(case: Any) -> Any:
    """Return how the kernels are launched: with few or with many threads."""
    shape = case.shape
    blocks, threads = SHAPES[case.variant.name]
    args = (case.inputs["table"], case.out, np.int32(shape.size), np.int32(shape.tasks), np.int32(shape.steps))
    return plant.Call((blocks * case.multiprocessors,), (threads,), args)


plant.pair(SPEC, TRUTH, __file__, call)
