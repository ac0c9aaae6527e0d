"""Warp states from the samples: what they add up to, how far they are from the counted ones, when there are none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import BYTE, CAPTURES, WIDE

from profiler.accounting import account
from profiler.books import ENOUGH_SAMPLES, Account
from profiler.compare import LATENCY, explain
from profiler.model import Report
from profiler.ncu_parse import load

QUICK = Path(__file__).parent / "data" / "quick.sm90.ncu-rep"
# Points of share by which any state may differ; measured on 34 launches of 19 reports (docs/profiling.md).
TOLERANCE, TOLERANCE_LONG_GEMM = 10.0, 1.0


def books(path: Path) -> Account:
    return account(load(path, instances=False, sources=False).launches[0])


def differences(a: Account) -> dict[str, float]:
    """Sampled minus counted share of each state, in points."""
    counted, sampled = sum(a.states.values()), sum(x.value for x in a.sampled_states.values())
    return {
        s.value: 100 * (a.sampled_states[s].value / sampled - value / counted) if s in a.sampled_states else 0.0
        for s, value in a.states.items()
    }


def test_quick_has_sampled_states_alone() -> None:
    a = books(QUICK)
    assert a.states == {}
    assert a.residual_cycles is None
    total = a.warp_cycles_per_issued_instruction
    assert total == pytest.approx(117.475, abs=1e-3)
    assert sum(x.value for x in a.sampled_states.values()) == pytest.approx(total)
    (top, x), *_ = sorted(a.sampled_states.items(), key=lambda item: -item[1].value)
    assert top == "long_scoreboard"
    assert (x.value, x.standard_error) == (pytest.approx(112.585, abs=1e-3), pytest.approx(0.133, abs=1e-3))
    rows = [row for row in a.rows() if row.group == "sampled states"]
    assert {row.basis for row in rows} == {"sampled"}
    assert all(row.standard_error is not None for row in rows)
    assert "Warp States" in {m.quantity for m in a.not_collected}


@pytest.mark.parametrize("path", [BYTE, WIDE], ids=lambda p: p.stem)
def test_sampled_and_counted_states_agree_on_a_long_gemm(path: Path) -> None:
    found = differences(books(path))
    assert len(found) == 19
    assert max(map(abs, found.values())) < TOLERANCE_LONG_GEMM


def test_sampled_and_counted_states_name_the_same_state(
    readable_paths: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    seen = 0
    for path in readable_paths:
        for launch in load_once(path).launches:
            a = account(launch)
            if not a.states or a.samples is None or a.samples.total < 10 * ENOUGH_SAMPLES or not a.sampled_states:
                continue
            seen += 1
            assert max(map(abs, differences(a).values())) < TOLERANCE, (path.name, launch.index)
            top = max(a.sampled_states, key=lambda s: a.sampled_states[s].value)
            # The same state, or one that is as large within a point.
            behind = max(a.states.values()) - a.states[top]
            assert behind < 0.01 * sum(a.states.values()), (path.name, launch.index)
    assert seen >= 5


def few(n: int) -> Account:
    """The quick launch as if it had only n samples, all of them in empty slots."""
    launch = load(QUICK, instances=False, sources=False).launches[0]
    metrics = {name: m for name, m in launch.metrics.items() if "warps_issue_stalled" not in name}
    for suffix in ("", "_not_issued"):
        name = f"smsp__pcsamp_warps_issue_stalled_long_scoreboard{suffix}"
        metrics[name] = replace(launch.metrics[name], value=n)
    return account(replace(launch, metrics=metrics))


def test_too_few_samples_conclude_nothing() -> None:
    enough, a = few(ENOUGH_SAMPLES), few(ENOUGH_SAMPLES - 1)
    assert enough.sampled_states
    assert enough.top_state is not None
    assert a.sampled_states == {}
    assert a.top_state is None
    assert [f.rule for f in a.findings if f.severity == "lever"] == []
    (finding,) = [f for f in a.findings if f.rule == "few-samples"]
    assert "99 samples in empty slots are too few to split them by state, and 99 in all to split" in finding.text
    assert "99 samples are too few to say what emptied them" in a.bound.sentence


def test_too_few_samples_are_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from dashboards.terminal import bars
    from dashboards.terminal.report import launch_parts

    console = Console(width=80)
    for part in launch_parts(few(7), bars.glyphs_for(console)):
        console.print(part)
    out = capsys.readouterr().out
    assert "Of 100 issue slots (counted; 7 samples are too few to split it)" in out
    assert "by state" not in out.replace("split them by state", "")
    assert "split by" not in out


def test_a_change_is_split_on_one_basis() -> None:
    """Sampled on both sides where one has not counted; never one against the other."""
    counted, quick = books(WIDE), books(QUICK)
    c = explain(quick, quick)
    assert not explain(counted, counted).states_sampled
    assert c.states_sampled
    assert [i.rule for i in c.cautions if i.rule == "sampled-states"] == ["sampled-states"]
    mixed = explain(quick, counted, force=True)
    assert mixed.states_sampled
    terms = {t.detail: t for t in mixed.terms if t.factor == LATENCY}
    assert "residual" not in terms
    assert terms["long_scoreboard"].after == pytest.approx(
        next(x.value for s, x in counted.sampled_states.items() if s.value == "long_scoreboard")
    )
    whole = next(t for t in mixed.factors if t.factor == LATENCY)
    assert sum(t.delta_ns for t in terms.values()) == pytest.approx(whole.delta_ns)
    bare = books(CAPTURES / "states_only.sm90.ncu-rep")
    assert not explain(bare, quick, force=True).states_sampled


def test_top_state_of_a_quick_report_comes_from_lost_slots() -> None:
    assert books(QUICK).top_state == "long_scoreboard"
