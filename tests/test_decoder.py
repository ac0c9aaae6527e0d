"""The tiny decoder: deterministic, varied, the same at every pitch, and changed by errors far below what is visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.loading import load_specimen, neighbour
from profiler.specimen import Shape

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
decoder, q8, q6k, q4k = (
    neighbour(__file__, f"../kernels/formats/{name}.py") for name in ("decoder", "q8", "q6k", "q4k")
)
MATRICES = decoder.LAYERS * len(decoder.PRODUCTS) + 1
STEPS = 32


def q6k_blocks(pitch: int) -> Callable[..., np.ndarray]:
    return lambda rng, rows, k: q6k.to_pitch(q6k.random_blocks(rows * k // 256, rng), pitch)


ENCODE = {"q6k": q6k_blocks(210), "q4k": q4k.random_blocks}
DECODE = {"q6k": q6k.decode, "q4k": q4k.decode}
# Of a block: where its float16 scale d stands.
D = {"q6k": 208, "q4k": 0}


Spoil = Callable[[int, np.ndarray], None]


class Gemm:
    """The float64 product; ``wrong(number, y)`` may spoil the result of a product, counted from 0."""

    def __init__(self, decode: Callable[..., np.ndarray], wrong: Spoil | None = None) -> None:
        self.decode, self.wrong = decode, wrong
        self.known: dict[int, tuple[Any, np.ndarray]] = {}
        self.sizes: list[tuple[int, ...]] = []

    def __call__(self, blocks: np.ndarray, x: np.ndarray) -> np.ndarray:
        rows, count, pitch = blocks.shape
        assert x.dtype == np.float32
        assert x.shape[1] == count * 256
        if id(blocks) not in self.known:
            # The blocks are kept too, so that no other array gets this id.
            self.known[id(blocks)] = blocks, self.decode(blocks.reshape(-1, pitch)).reshape(rows, x.shape[1])
        q, scale, _ = q8.quantise(x)
        y = (q8.dequantise(q, scale) @ self.known[id(blocks)][1].T).astype(np.float32)
        if self.wrong is not None:
            self.wrong(len(self.sizes), y)
        self.sizes.append((len(x), rows, x.shape[1]))
        return y


def tokens(format_: str, **options: Any) -> bytes:
    return decoder.greedy(Gemm(DECODE[format_], **options), ENCODE[format_], STEPS)


@pytest.mark.parametrize("format_", ENCODE)
def test_the_tokens_are_the_same_twice_and_varied(format_: str) -> None:
    once = tokens(format_)
    assert once == tokens(format_)
    assert len(once) == STEPS
    assert len(set(once)) >= 8


@pytest.mark.parametrize("seed", range(3))
def test_they_are_varied_for_other_weights_too_and_differ(seed: int) -> None:
    for format_, encode in ENCODE.items():
        made = [decoder.greedy(Gemm(DECODE[format_]), encode, STEPS, seed=s) for s in (seed, seed + 10)]
        assert made[0] != made[1]
        assert min(len(set(out)) for out in made) >= 8


def test_a_prefill_of_an_odd_number_of_tokens_and_then_one_at_a_time() -> None:
    gemm = Gemm(q6k.decode)
    decoder.greedy(gemm, ENCODE["q6k"], STEPS)
    assert len(gemm.sizes) == STEPS * MATRICES
    assert {count for count, _, _ in gemm.sizes[: MATRICES - 1]} == {15}
    assert {count for count, _, _ in gemm.sizes[MATRICES - 1 :]} == {1}
    assert {k for _, _, k in gemm.sizes} == {256, 512}


def test_the_cache_of_keys_and_values_is_what_a_longer_prompt_computes() -> None:
    def logits(*parts: bytes) -> np.ndarray:
        made = decoder.Decoder(Gemm(q6k.decode), ENCODE["q6k"], STEPS, 7)
        # Without what a step hands to the next, which a prompt read at once does not have.
        for part in parts:
            made._state[:] = 0
            last = made.logits(part)
        return last

    np.testing.assert_allclose(logits(b"abcdef", b"g", b"hi"), logits(b"abcdefghi"), rtol=1e-9)
    # Later tokens do not change earlier ones; earlier ones do change later ones.
    assert not np.allclose(logits(b"abcdef"), logits(b"bacdef"), rtol=1e-2)


def test_the_pitch_of_the_blocks_changes_nothing() -> None:
    made = {pitch: decoder.greedy(Gemm(q6k.decode), q6k_blocks(pitch), STEPS) for pitch in (210, 224)}
    assert made[210] == made[224]


@pytest.mark.parametrize("format_", ENCODE)
@pytest.mark.parametrize("number", [0, 4, 40, 100, 200])
def test_one_product_that_is_wrong_by_one_part_in_a_hundred_changes_them(format_: str, number: int) -> None:
    def wrong(at: int, y: np.ndarray) -> None:
        if at == number:
            y[:, ::2] *= np.float32(1.01)

    assert tokens(format_, wrong=wrong) != tokens(format_)


@pytest.mark.parametrize("format_", ENCODE)
@pytest.mark.parametrize("matrix", range(MATRICES - 1))
def test_one_block_whose_scale_is_five_per_cent_off_changes_them(format_: str, matrix: int) -> None:
    made = []

    def encode(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
        blocks = ENCODE[format_](rng, rows, k).reshape(rows * k // 256, -1)
        if len(made) == matrix:
            d = blocks[3, D[format_] : D[format_] + 2].view(np.float16)
            d *= np.float16(1.05)
        made.append(blocks)
        return blocks

    assert decoder.greedy(Gemm(DECODE[format_]), encode, STEPS) != tokens(format_)
    assert len(made) == MATRICES


@pytest.mark.parametrize(("format_", "pitch"), [("q6k", 210), ("q6k", 224), ("q4k", None)])
def test_as_a_program_of_a_specimen(format_: str, pitch: int | None) -> None:
    specimen = load_specimen(KERNELS / format_)
    encode = ENCODE[format_] if pitch is None else q6k_blocks(pitch)
    seen = []

    def run(shape: Shape, inputs: dict[str, Any]) -> np.ndarray:
        assert list(shape) == list(specimen.shape)
        assert shape.get("pitch") == pitch
        made = specimen.make_inputs(shape)
        assert {n: (inputs[n].shape, inputs[n].dtype) for n in made} == {n: (a.shape, a.dtype) for n, a in made.items()}
        seen.append(shape)
        return specimen.make_reference(shape, inputs).astype(np.float32)

    assert decoder.program(specimen.shape, encode)(run) == tokens(format_)
    assert len(seen) == STEPS * MATRICES
