"""docs/specimens.md: the spec that it shows in full loads, compiles and passes, and what it says is complete."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from host_bench import HostBench

from profiler import build, errors
from profiler.launch import Case
from profiler.loading import load_specimen
from profiler.specimen import CudaSource, Specimen
from profiler.verify import Verdict, verify

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "specimens.md").read_text(encoding="utf-8")
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILE.findall(PAGE):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


class NumpyBench(HostBench):
    """Stands in for the page's kernel; ``wrong`` computes something else."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.wrong = wrong

    def function(self, source: CudaSource, entry: str) -> Any:
        assert entry == "relu"

        def kernel(grid: Any, block: Any, args: tuple[Any, ...], shared_mem: int) -> None:
            x, out, n = args
            assert grid[0] * block[0] >= n
            out[:n] = np.abs(x[:n]) if self.wrong else np.maximum(x[:n], 0)

        return kernel


def test_the_spec_of_the_page_passes_and_a_wrong_kernel_does_not(folder: Path) -> None:
    specimen = load_specimen(folder)
    assert verify(specimen, specimen.variants, NumpyBench()).ok
    wrong = verify(specimen, specimen.variants, NumpyBench(wrong=True))
    assert "INCORRECT" in wrong.verdicts


def test_the_source_of_the_page_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if build.find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++")
    monkeypatch.setenv("CYINST_CACHE", str(folder / "cache"))
    (source,) = load_specimen(folder).variants[0].sources
    assert b".text.relu" in build.build(source, "sm_90").read_bytes()


@pytest.mark.gpu
def test_the_spec_of_the_page_passes_on_a_gpu(folder: Path) -> None:
    from profiler.launch import Bench

    specimen = load_specimen(folder)
    assert verify(specimen, specimen.variants, Bench()).ok


def test_every_declaration_and_what_a_case_offers_is_explained() -> None:
    for name in ("inputs", "reference", "output", "work", "variant", "program"):
        assert callable(getattr(Specimen, name))
        assert f"`@SPEC.{name}`" in PAGE
    for name in ("kernel", "array"):
        assert callable(getattr(Case, name))
        assert f"`{name}(" in PAGE


def test_every_verdict_and_exit_code_is_explained() -> None:
    for verdict in get_args(Verdict):
        assert f"\n| `{verdict}` |" in PAGE
    for kind, row in (
        (errors.UsageError, "| 2, 5 |"),
        (errors.NoMatchError, "| 2, 5 |"),
        (errors.MissingToolError, "| 6 |"),
        (errors.IncorrectError, "| 7 |"),
        (errors.SpecimenError, "| 8 |"),
    ):
        assert f"\n{row}" in PAGE
        assert str(kind.exit_code) in row
