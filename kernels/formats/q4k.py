"""q4_K blocks: 256 weights in 144 bytes; NumPy on the host. The format is ggml's (``block_q4_K``).

A block is f16 d, f16 dmin, 12 bytes of packed 6-bit scales and mins of 8 sub-blocks of 32, and 128 bytes of nibbles; a
weight is d * sc * q - dmin * m. Bytes 32 i .. 32 i + 31 of the nibbles hold sub-block 2 i (low) and 2 i + 1 (high).
``blocks`` is uint8 of any size that is a multiple of 144; a matrix is row-major, k / 256 blocks a row.
"""

from __future__ import annotations

import numpy as np

BLOCK = 144
WEIGHTS = 256
CHUNK = 32
CHUNKS = WEIGHTS // CHUNK
# The planes' rows are padded to the tile of the kernels that read them.
TILE = 128


def random_blocks(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """Return uint8 [rows * k/256 * 144]: all values of q, sc and m; d and dmin make weights of about 0.05."""
    blocks = rng.integers(0, 256, (rows * k // WEIGHTS, BLOCK), dtype=np.uint8)
    d_and_dmin = rng.uniform(0.5, 1.5, (len(blocks), 2)) * (2e-4, 1.5e-3)
    blocks[:, :4] = d_and_dmin.astype("<f2").view(np.uint8)
    return blocks.reshape(-1)


def scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return d * sc and -(dmin * m), float32 [blocks][8]; both products are exact (11 by 6 bits)."""
    blocks = blocks.reshape(-1, BLOCK)
    halves = np.ascontiguousarray(blocks[:, :4]).view("<f2").astype(np.float32)
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    first, second, last = packed[:, 0], packed[:, 1], packed[:, 2]
    sc = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    m = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    return halves[:, :1] * sc.astype(np.float32), -(halves[:, 1:] * m.astype(np.float32))


def nibbles(blocks: np.ndarray) -> np.ndarray:
    """Return q, int8 [blocks][8][32], 0 to 15."""
    packed = blocks.reshape(-1, BLOCK)[:, 16:].reshape(-1, CHUNKS // 2, 1, CHUNK)
    both = np.concatenate([packed & 15, packed >> 4], axis=2)
    return both.reshape(-1, CHUNKS, CHUNK).astype(np.int8)


def decode(blocks: np.ndarray) -> np.ndarray:
    """Return the weights, float64 [blocks][256], exactly."""
    scale, minimum = (part.astype(np.float64)[:, :, None] for part in scales(blocks))
    return (scale * nibbles(blocks) + minimum).reshape(-1, WEIGHTS)


def padded(rows: int) -> int:
    """Return the number of rows in the planes of ``rows`` rows."""
    return -(-rows // TILE) * TILE


def planes(blocks: np.ndarray, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``q4k_expand_planes`` writes for a matrix [rows][k]; rows past the end are zeros.

    EB int8 [k/256][padded rows][8][32] holds q; SB float32 [k/32][padded rows][2] holds (d * sc, -(dmin * m)).
    """
    count, height = k // WEIGHTS, padded(rows)
    eb = np.zeros((count, height, CHUNKS, CHUNK), np.int8)
    eb[:, :rows] = nibbles(blocks).reshape(rows, count, CHUNKS, CHUNK).swapaxes(0, 1)
    sb = np.zeros((count, CHUNKS, height, 2), np.float32)
    pairs = np.stack(scales(blocks), axis=-1).reshape(rows, count, CHUNKS, 2)
    sb[:, :, :rows] = pairs.transpose(1, 2, 0, 3)
    return eb, sb.reshape(count * CHUNKS, height, 2)
