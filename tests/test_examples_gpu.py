"""The example specimens on a GPU, through CuPy, Triton and PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.loading import load_specimen
from profiler.verify import verify

EXAMPLES = Path(__file__).resolve().parent.parent / "kernels" / "examples"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "needed"),
    [("cupy_saxpy", ("cupy",)), ("triton_add", ("cupy", "torch", "triton")), ("torch_matmul", ("cupy", "torch"))],
)
def test_an_example_passes(name: str, needed: tuple[str, ...]) -> None:
    for package in needed:
        pytest.importorskip(package, reason=f"{name} needs {package}, which is not installed")
    from profiler.launch import Bench

    specimen = load_specimen(EXAMPLES / name)
    result = verify(specimen, specimen.variants, Bench())
    assert result.ok, [check for check in result.checks if check.verdict != "ok"]
    errors = [max(check.relative_error or 0 for check in result.of(variant.name)) for variant in specimen.variants]
    if name == "torch_matmul":
        # Rounding to 8 bits shows, so it did happen.
        assert errors[0] < 1e-5 < errors[1]
