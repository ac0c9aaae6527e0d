"""cyinst against the planted kernels: the figures of docs/truth.md must not fall."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from profiler.launch import Bench
from profiler.loading import load_specimen
from profiler.verify import verify

ROOT = Path(__file__).parent.parent
PLANTED = ROOT / "kernels" / "planted"
PAIRS = sorted(path.parent.name for path in PLANTED.glob("*/spec.py"))
SET_LIMIT = 20 << 20


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    spec = importlib.util.spec_from_file_location("truth", ROOT / "scripts" / "truth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["truth"] = module
    spec.loader.exec_module(module)
    return module


def test_the_figures_that_are_published(truth: ModuleType) -> None:
    totals = truth.totals()
    assert totals["pairs"] == len(PAIRS) >= 24
    assert totals["top-1"] == totals["top-3"] == len(PAIRS)
    assert totals["top-1 in the main state"] >= 33
    assert totals["gain attributed"] == len(PAIRS)
    assert totals["above the ceiling"] == 0
    assert totals["predicted"] >= len(PAIRS) - 1
    assert totals["mean error, %"] < 6.5
    assert totals["worst error, %"] < 20.0


def test_the_expected_gain_never_exceeds_the_ceiling(truth: ModuleType) -> None:
    for r in truth.results():
        assert 0 <= r.expected <= r.ceiling <= 100, r.name


def test_a_wrong_truth_does_not_rank(truth: ModuleType) -> None:
    """The judge can fail: other lines and other states are not found."""
    (chase,) = (r for r in truth.results() if r.name == "chase")
    assert chase.rank == 1
    lever = next(x for x in truth.levers_of(truth.hots_of("chase", *read(truth, "chase"))[0]))
    lines = truth.guilty_lines("chase", chase.truth.line)
    assert truth.is_guilty(lever, "chase", chase.truth, lines)
    assert not truth.is_guilty(lever, "chase", chase.truth, frozenset({line + 1 for line in lines}))
    assert not truth.is_guilty(lever, "spill", chase.truth, lines)
    for states in (("barrier",), (truth.plant.NO_WARPS,), (truth.plant.IDLE_LANES,)):
        other = type(chase.truth)(**{**vars(chase.truth), "states": states})
        assert not truth.is_guilty(lever, "chase", other, lines)


def read(truth: ModuleType, name: str) -> tuple[object, object]:
    path = truth.CAPTURES / f"{name}.sm90.ncu-repz"
    return truth.load(path, metrics=truth.metrics_for_attribution()), truth.open_code(str(path))


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_names_a_line_that_is_there_and_keeps_its_twin_apart(name: str, truth: ModuleType) -> None:
    claim = truth.truth_of(name)
    spec = load_specimen(PLANTED / name)
    assert [v.name for v in spec.variants] == ["guilty", "fixed"]
    assert {v.bit_equal for v in spec.variants} == {"pair"}
    text = (PLANTED / name / f"{name}.cu").read_text()
    assert bool(claim.line) == bool(truth.guilty_lines(name, claim.line))
    assert claim.region in truth.FACTORS or f"// @region {claim.region}\n" in text
    assert all((claim.cause, claim.states, claim.why, claim.fix))


def test_the_captures_are_small_and_complete(truth: ModuleType) -> None:
    files = list(truth.CAPTURES.iterdir())
    assert sum(file.stat().st_size for file in files) < SET_LIMIT
    assert set(truth.timings()) == set(PAIRS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAIRS)
def test_guilty_and_fixed_compute_the_same(name: str) -> None:
    spec = load_specimen(PLANTED / name)
    assert set(verify(spec, spec.pick(()), Bench()).verdicts) == {"ok"}
