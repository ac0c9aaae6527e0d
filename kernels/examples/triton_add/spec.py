"""out = x + y through Triton, with blocks of two sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from profiler.loading import neighbour
from profiler.specimen import Shape, Specimen

SPEC = Specimen(
    name="triton_add",
    about="out = x + y, through Triton",
    shape=Shape(n=1 << 24),
    sweep=tuple(Shape(n=n) for n in (1, 2, 255, 256, 257, 1000, 4097, 1 << 20)),
    tolerance=1e-7,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Two arrays of random numbers."""
    x, y = rng.standard_normal((2, shape.n), dtype=np.float32)
    return {"x": x, "y": y}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The same in float64."""
    return inputs["x"].astype(np.float64) + inputs["y"].astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """One float32 array."""
    return (shape.n,), "float32"


def blocks_of(size: int) -> Callable[[Any], Callable[[], None]]:
    """Return the preparation of a variant with ``size`` elements a program."""

    def prepare(case: Any) -> Callable[[], None]:
        # Triton takes PyTorch's tensors; these share memory with CuPy's arrays.
        import torch

        kernel = neighbour(__file__, "kernel.py")
        x, y, out = map(torch.from_dlpack, (case.inputs["x"], case.inputs["y"], case.out))
        n = case.shape.n
        return lambda: kernel.add[(-(-n // size),)](x, y, out, n, BLOCK=size)

    return prepare


SPEC.variant("1_blocks_of_256", idea="two elements a thread", bit_equal="sum")(blocks_of(256))
SPEC.variant("2_blocks_of_1024", idea="eight elements a thread: 16-byte loads", bit_equal="sum")(blocks_of(1024))
