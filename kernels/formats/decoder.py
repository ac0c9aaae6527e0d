"""A tiny language model whose matrix products are the specimen's: does a change of rung change what comes out?

Two layers, random weights: token and position embeddings, causal attention with four heads, SwiGLU, RMS norms. Products
with weights go through ``gemm(blocks, x)``: weights in a block format, uint8 [rows][k/256][bytes], ``x`` float32
[tokens][k], result [tokens][rows]. All else is float64, rounded to float32 only where a product takes it, so that the
same products give the same tokens whatever NumPy's order of summing.

It is built to be touchy. The last hidden state is added to the next token's embedding, attention is sharp and the
residual is halved, so that an error of one product grows from token to token until it changes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape

q8 = neighbour(__file__, "q8.py")

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY = 2, 256, 4, 512, 256
# The products of a layer: name, rows, k.
PRODUCTS = (
    ("qkv", 3 * HIDDEN, HIDDEN),
    ("attention_out", HIDDEN, HIDDEN),
    ("gate_up", 2 * FFN, HIDDEN),
    ("down", HIDDEN, FFN),
)
BLOCK_VALUES = 256
# An odd number of tokens.
PROMPT = b"Where did it go"
SHARPNESS = 0.5

Gemm = Callable[[np.ndarray, np.ndarray], np.ndarray]
Encode = Callable[[np.random.Generator, int, int], np.ndarray]


class Decoder:
    """The weights, made by ``encode(rng, rows, k)`` -> blocks, and what is kept of the tokens so far."""

    def __init__(self, gemm: Gemm, encode: Encode, steps: int, seed: int) -> None:
        """Make the weights; ``steps`` more tokens than the prompt's have a position."""
        rng = np.random.default_rng(seed)

        def weights(rows: int, k: int) -> np.ndarray:
            return encode(rng, rows, k).reshape(rows, k // BLOCK_VALUES, -1)

        self._gemm = gemm
        self._layers = [{name: weights(rows, k) for name, rows, k in PRODUCTS} for _ in range(LAYERS)]
        self._head = weights(VOCABULARY, HIDDEN)
        self._tokens = rng.standard_normal((VOCABULARY, HIDDEN))
        self._positions = rng.standard_normal((len(PROMPT) + steps, HIDDEN))
        self._seen: list[list[np.ndarray]] = [[] for _ in range(LAYERS)]
        self._state = np.zeros(HIDDEN)

    def logits(self, tokens: bytes) -> np.ndarray:
        """Append ``tokens`` to those so far; return the logits of the token after them."""
        start = sum(map(len, self._seen[0]))
        x = self._tokens[list(tokens)] + self._positions[start : start + len(tokens)]
        x[0] += self._state
        for layer, seen in zip(self._layers, self._seen, strict=True):
            x = x / 2 + self._attend(layer, seen, norm(x))
            gate, up = np.split(self._product(layer["gate_up"], norm(x)), 2, axis=1)
            x = x / 2 + self._product(layer["down"], gate / (1 + np.exp(-gate)) * up)
        self._state = norm(x[-1])
        return self._product(self._head, self._state[None])[0]

    def _attend(self, layer: dict[str, np.ndarray], seen: list[np.ndarray], x: np.ndarray) -> np.ndarray:
        seen.append(self._product(layer["qkv"], x).reshape(len(x), 3, HEADS, HIDDEN // HEADS))
        queries = seen[-1][:, 0]
        keys, values = np.moveaxis(np.concatenate(seen)[:, 1:], 1, 0)
        scores = np.einsum("qhd,khd->hqk", queries, keys) * SHARPNESS
        ahead = np.arange(len(keys)) > np.arange(len(keys) - len(x), len(keys))[:, None]
        scores = np.where(ahead, -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(axis=2, keepdims=True), values)
        return self._product(layer["attention_out"], mixed.reshape(len(x), HIDDEN))

    def _product(self, blocks: np.ndarray, x: np.ndarray) -> np.ndarray:
        # Normed, so that the size of a format's random weights does not matter.
        return norm(self._gemm(blocks, x.astype(np.float32)).astype(np.float64))


def norm(x: np.ndarray) -> np.ndarray:
    """Return ``x`` divided by the root mean square of its last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True))


def greedy(gemm: Gemm, encode: Encode, steps: int = 32, seed: int = 7) -> bytes:
    """Return the ``steps`` most likely tokens after the prompt, a byte each.

    That is 9 products with all tokens of the prompt, then 9 with one token for each further step.
    """
    decoder = Decoder(gemm, encode, steps, seed)
    out = bytearray()
    for _ in range(steps):
        out.append(int(np.argmax(decoder.logits(bytes(out[-1:]) or PROMPT))))
    return bytes(out)


def program(shape: Shape, encode: Encode) -> Callable[[Callable[..., np.ndarray]], bytes]:
    """Return the decoder as a GEMM specimen's program: ``SPEC.program("32 tokens")(program(SPEC.shape, encode))``.

    The specimen's sizes are tokens, rows, k and, where blocks may lie further apart than they are long, pitch; its
    inputs are weights, a_q, a_scale and a_total. Activations are quantised here, on the host.
    """

    def make(run: Callable[[Shape, dict[str, Any]], np.ndarray]) -> bytes:
        def gemm(blocks: np.ndarray, x: np.ndarray) -> np.ndarray:
            q, scale, total = q8.quantise(x)
            sizes = {"tokens": len(x), "rows": len(blocks), "k": x.shape[1], "pitch": blocks.shape[2]}
            here = Shape({name: sizes[name] for name in shape})
            return run(here, {"weights": blocks.reshape(-1), "a_q": q, "a_scale": scale, "a_total": total})

        return greedy(gemm, encode)

    return make
