"""Planes of q4_K matrices, expanded on the device when weights are loaded, found again by the weights' raw pointer.

A launch knows its weights by a pointer alone, and a pointer is used again once its memory is freed. An entry therefore
lives only as long as the array that was registered, and serves only a matrix of the same sizes. Whoever changes weights
in place registers them again.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler.loading import neighbour

q4k = neighbour(__file__, "../formats/q4k.py")

_registered: dict[int, Planes] = {}


@dataclass(frozen=True)
class Planes:
    """The planes of the matrix [rows][k] at a pointer; ``weights`` refers weakly to the array they were made from."""

    eb: Any
    sb: Any
    rows: int
    k: int
    weights: weakref.ref[Any]


def register(case: Any, weights: Any, rows: int, k: int) -> Planes:
    """Expand raw blocks, uint8 [rows * k/256 * 144] on the device, and enter the planes in place of an older entry.

    The planes are ``case.array``s: EB int8 [k/256][padded rows][8][32], SB float32 [k/32][padded rows][2].
    """
    pointer, height, blocks = int(weights.data.ptr), q4k.padded(rows), k // q4k.WEIGHTS
    _registered.pop(pointer, None)
    eb = case.array((blocks, height, q4k.CHUNKS, q4k.CHUNK), "int8")
    sb = case.array((blocks * q4k.CHUNKS, height, 2), "float32")
    expand = case.kernel("q4k_expand_planes")
    expand((height * q4k.CHUNKS // 256, blocks), (256,), (weights, eb, sb, np.int32(rows), np.int32(height)))
    planes = Planes(eb, sb, rows, k, weakref.ref(weights, lambda dead: _drop(pointer, dead)))
    _registered[pointer] = planes
    return planes


def find(pointer: int, rows: int, k: int) -> Planes | None:
    """Return the planes of the weights at ``pointer``, None when they have none or are of other sizes."""
    planes = _registered.get(pointer)
    if planes is None or planes.weights() is None or (planes.rows, planes.k) != (rows, k):
        return None
    return planes


def _drop(pointer: int, dead: weakref.ref[Any]) -> None:
    """Forget the planes of weights that are gone, unless others were registered at their place since."""
    planes = _registered.get(pointer)
    if planes is not None and planes.weights is dead:
        del _registered[pointer]
