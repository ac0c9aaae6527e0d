"""C = A B through PyTorch, in two precisions; the one that rounds its inputs has a tolerance of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from profiler.model import Work
from profiler.specimen import Shape, Specimen

SPEC = Specimen(
    name="torch_matmul",
    about="C = A B, through PyTorch",
    shape=Shape(m=2048, n=2048, k=2048),
    sweep=tuple(
        Shape(m=m, n=n, k=k)
        for m, n, k in (
            (1, 1, 1), (1, 64, 128), (7, 33, 65), (31, 32, 33), (64, 64, 64), (129, 127, 250), (255, 1, 512),
            (300, 600, 900),
        )
    ),
    tolerance=1e-5,
)  # fmt: skip


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Two matrices of random numbers."""
    a = rng.standard_normal((shape.m, shape.k), dtype=np.float32)
    return {"a": a, "b": rng.standard_normal((shape.k, shape.n), dtype=np.float32)}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The product in float64."""
    return inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """C, row-major."""
    return (shape.m, shape.n), "float32"


@SPEC.work
def work(shape: Shape) -> Work:
    """As many multiply-accumulates as the matrices are large."""
    return Work.gemm(shape.m, shape.n, shape.k)


@SPEC.variant("1_float32", idea="as the inputs are")
def float32(case: Any) -> Callable[[], None]:
    """Written into ``case.out``, whose poison shows what was left out."""
    import torch

    a, b, out = map(torch.from_dlpack, (case.inputs["a"], case.inputs["b"], case.out))

    def launch() -> None:
        torch.matmul(a, b, out=out)

    return launch


@SPEC.variant("2_bfloat16", idea="tensor cores, inputs rounded to 8 bits", tolerance=1e-2)
def bfloat16(case: Any) -> Callable[[], Any]:
    """B is rounded once, at load time; A at every launch. What a launch returns is taken instead of ``case.out``."""
    import torch

    a, b = map(torch.from_dlpack, (case.inputs["a"], case.inputs["b"]))
    weights = b.bfloat16()
    return lambda: torch.matmul(a.bfloat16(), weights).float()
