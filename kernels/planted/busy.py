"""``busy.cuh`` for NumPy."""

from __future__ import annotations

import numpy as np

_STEPS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None), (15, 0x85EBCA77), (13, 0xC2B2AE3D), (16, None))


def busy(x: np.ndarray) -> np.ndarray:
    """Return what ``busy`` makes of an array of uint32."""
    for shift, factor in _STEPS:
        x = x ^ (x >> np.uint32(shift))
        if factor is not None:
            x = x * np.uint32(factor)
    return x


def toil(x: np.ndarray, times: int) -> np.ndarray:
    """Return what ``times`` calls of ``busy`` make of it."""
    for _ in range(times):
        x = busy(x)
    return x
