"""Activations as int8 with one float32 scale per 32 values, the way ggml's q8 blocks do it; NumPy on the host.

``x`` is float32 [tokens][k], k a multiple of 32. The scales lie by chunk, [k/32][tokens], because a kernel that walks
along k reads them for many tokens of one chunk at a time.
"""

from __future__ import annotations

import numpy as np

CHUNK = 32
# Chunks without a larger value count as zeros: 127 / max|x| must be finite, and max|x| / 127 a normal number.
SMALLEST = np.float32(2.0**-100)


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q int8 [tokens][k], scale float32 [k/32][tokens] and total float32 [k/32][tokens] = scale * sum(q).

    scale = max|x| / 127 and q = round(x * (127 / max|x|)), half to even, all in float32: what the CUDA kernel computes,
    to the bit. A chunk of zeros, or of values below ``SMALLEST``, has scale 0.
    """
    tokens, k = x.shape
    chunks = np.ascontiguousarray(x, dtype=np.float32).reshape(tokens, k // CHUNK, CHUNK)
    largest = np.abs(chunks).max(axis=2)
    largest = np.where(largest >= SMALLEST, largest, np.float32(0))
    safe = np.where(largest > 0, largest, np.float32(1))
    inverse = np.where(largest > 0, np.float32(127) / safe, np.float32(0))
    q = np.rint(chunks * inverse[:, :, None]).astype(np.int8)
    scale = largest / np.float32(127)
    total = scale * q.sum(axis=2, dtype=np.int32).astype(np.float32)
    return q.reshape(tokens, k), np.ascontiguousarray(scale.T), np.ascontiguousarray(total.T)


def dequantise(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the float64 values [tokens][k] of ``q`` int8 [tokens][k] with ``scale`` [k/32][tokens]."""
    return q.astype(np.float64) * np.repeat(scale.astype(np.float64).T, CHUNK, axis=1)
