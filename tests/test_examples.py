"""The example specimens load, list and describe themselves without a GPU, CuPy, PyTorch or Triton."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_bench import HostBench

from profiler.loading import bundled, load_specimen
from profiler.verify import describe, verify

EXAMPLES = Path(__file__).resolve().parent.parent / "kernels" / "examples"
# Folder -> variants, what they are launched through, the product that the reference must be.
WANTED: dict[str, tuple[list[str], str, Any]] = {
    "cupy_saxpy": (["1_two_passes", "2_fused"], "cupy", lambda a, x, y: a * x.astype(float) + y),
    "triton_add": (["1_blocks_of_256", "2_blocks_of_1024"], "torch", lambda x, y: x.astype(float) + y),
    "torch_matmul": (["1_float32", "2_bfloat16"], "torch", lambda a, b: a.astype(float) @ b),
}


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cupy", "torch", "triton"):
        monkeypatch.setitem(sys.modules, name, None)


def test_these_are_the_examples() -> None:
    assert {name for name in bundled() if name.startswith("examples/")} == {f"examples/{name}" for name in WANTED}


@pytest.mark.parametrize("name", WANTED)
def test_an_example_loads_and_lists(name: str) -> None:
    specimen = load_specimen(EXAMPLES / name)
    listed = describe(specimen, specimen.variants, specimen.sweep)
    assert [variant["name"] for variant in listed["variants"]] == WANTED[name][0]
    assert len(listed["sweep"]) >= 8


@pytest.mark.parametrize("name", WANTED)
def test_its_reference_is_right_and_its_output_fits(name: str) -> None:
    specimen = load_specimen(EXAMPLES / name)
    for shape in specimen.sweep:
        inputs = specimen.make_inputs(shape)
        expected = specimen.make_reference(shape, inputs)
        assert (expected.shape, expected.dtype) == (specimen.output_of(shape)[0], np.float64)
        np.testing.assert_allclose(expected, WANTED[name][2](**inputs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", WANTED)
def test_a_missing_package_is_one_line_that_names_it(name: str) -> None:
    specimen = load_specimen(EXAMPLES / name)
    for check in verify(specimen, specimen.variants, HostBench()).checks:
        assert check.verdict == "INVALID"
        (problem,) = check.problems
        assert problem.startswith("spec.py:")
        assert WANTED[name][1] in problem
