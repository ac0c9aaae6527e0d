"""q6_K weights: 256 in a block of 210 bytes, as ggml stores them; NumPy on the host.

    0..127   ql      low nibbles
    128..191 qh      two high bits each
    192..207 scales  int8, one for each 16 weights
    208..209 d       float16

Weight = d * scale * ((low | high << 4) - 32). The 16 weights 16j..16j+15 share scale j; with half = j // 8,
quarter = j % 8 // 2 and odd = j % 2, weight i of them has its nibble in ql[64 half + 32 (quarter % 2) + 16 odd + i],
the lower one for quarters 0 and 1, and its high bits in qh[32 half + 16 odd + i] from bit 2 * quarter on. Source:
ggml, block_q6_K and dequantize_row_q6_K.

Blocks may be stored further apart than 210 bytes: at a pitch of 224, runs of 16 bytes are aligned.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256
BYTES = 210
SCALES, D = 192, 208
_J = np.arange(16)
# Of each of the 16 runs of a block: first nibble byte, first byte with high bits, and the shifts of both.
NIBBLES = _J // 8 * 64 + _J % 4 * 16
HIGHS = 128 + _J // 8 * 32 + _J % 2 * 16
LOW_SHIFT = _J % 8 // 4 * 4
HIGH_SHIFT = _J % 8 // 2 * 2


def random_blocks(count: int, rng: np.random.Generator, size: float = 0.05) -> np.ndarray:
    """Return uint8 [count][210]: any bits, any scales, d such that weights are of the order of ``size``."""
    blocks = np.frombuffer(rng.bytes(count * BYTES), dtype=np.uint8).reshape(count, BYTES).copy()
    # Levels and scales are uniform: their standard deviations are 18.5 and 73.9.
    d = size / (18.5 * 73.9) * rng.uniform(0.5, 1.5, count) * rng.choice([-1, 1], count)
    blocks[:, D:] = d.astype("<f2")[:, None].view(np.uint8)
    return blocks


def to_pitch(blocks: np.ndarray, pitch: int) -> np.ndarray:
    """Return uint8 [count * pitch] with one of ``blocks`` [count][210] every ``pitch`` bytes, 0xff between them."""
    stored = np.full((len(blocks), pitch), 0xFF, dtype=np.uint8)
    stored[:, :BYTES] = blocks
    return stored.reshape(-1)


def levels(blocks: np.ndarray) -> np.ndarray:
    """Return int8 [count][256], the integers -32..31 of ``blocks`` uint8 [count][at least 210]."""
    within = np.arange(16)
    low = blocks[:, NIBBLES[:, None] + within] >> LOW_SHIFT[:, None].astype(np.uint8) & 15
    high = blocks[:, HIGHS[:, None] + within] >> HIGH_SHIFT[:, None].astype(np.uint8) & 3
    return ((low | high << 4).astype(np.int8) - np.int8(32)).reshape(len(blocks), BLOCK)


def scales(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [count][16]: d * scale, rounded once, as a kernel computes it."""
    d = np.ascontiguousarray(blocks[:, D : D + 2]).view("<f2").astype(np.float32)
    return d * blocks[:, SCALES:D].view(np.int8).astype(np.float32)


def decode(blocks: np.ndarray) -> np.ndarray:
    """Return float64 [count][256], the weights of ``blocks`` uint8 [count][at least 210].

    d * scale has 11 and 8 significant bits: nothing is rounded.
    """
    return levels(blocks) * np.repeat(scales(blocks).astype(np.float64), 16, axis=1)


def expand_wide(ql: np.ndarray, qh: np.ndarray, quarter: int) -> np.ndarray:
    """Return uint32 words of four int8 levels from words of ``ql`` and ``qh``: the closed form that kernels use.

    q = low | high << 4 is below 64, so 0x60 + q has no carry out of its byte, and (0x60 + q) ^ 0x80 is q - 32.
    """
    low = ql >> np.uint32(quarter // 2 * 4) & np.uint32(0x0F0F0F0F)
    high = qh >> np.uint32(quarter * 2) & np.uint32(0x03030303)
    return (low | np.uint32(0x60606060)) + high * np.uint32(16) ^ np.uint32(0x80808080)
