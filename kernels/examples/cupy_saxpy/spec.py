"""out = a * x + y through CuPy: a launch may be any Python function, with no CUDA source at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from profiler.model import Work
from profiler.specimen import Shape, Specimen

SPEC = Specimen(
    name="saxpy",
    about="out = a * x + y, through CuPy",
    shape=Shape(n=1 << 24),
    sweep=tuple(Shape(n=n) for n in (1, 2, 31, 32, 33, 1000, 4097, 1 << 20)),
    tolerance=1e-6,
)


@SPEC.inputs
def inputs(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """Two arrays; a NumPy scalar reaches the variants as it is."""
    x, y = rng.standard_normal((2, shape.n), dtype=np.float32)
    return {"a": np.float32(1.7), "x": x, "y": y}


@SPEC.reference
def reference(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
    """The same in float64."""
    return np.float64(inputs["a"]) * inputs["x"].astype(np.float64) + inputs["y"].astype(np.float64)


@SPEC.output
def output(shape: Shape) -> tuple[tuple[int, ...], str]:
    """One float32 array."""
    return (shape.n,), "float32"


@SPEC.work
def work(shape: Shape) -> Work:
    """A multiply-accumulate for each element."""
    return Work(float(shape.n), f"{shape.n} elements")


@SPEC.variant("1_two_passes", idea="a kernel for each operation", bit_equal="two_roundings")
def two_passes(case: Any) -> Callable[[], None]:
    """The product goes through memory."""
    import cupy

    a, x, y = (case.inputs[name] for name in "axy")
    product = case.array(case.shape.n, "float32")

    def launch() -> None:
        cupy.multiply(x, a, out=product)
        cupy.add(product, y, out=case.out)

    return launch


@SPEC.variant("2_fused", idea="both operations in one kernel", bit_equal="two_roundings")
def fused(case: Any) -> Callable[[], None]:
    """The compiler must not make one rounding of the two, or the bits would differ."""
    import cupy

    a, x, y = (case.inputs[name] for name in "axy")
    saxpy = cupy.ElementwiseKernel(
        "float32 a, float32 x, float32 y", "float32 out", "out = __fadd_rn(__fmul_rn(a, x), y)", "saxpy"
    )
    return lambda: saxpy(a, x, y, case.out)
