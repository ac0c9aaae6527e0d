import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.accounting import account
from profiler.books import Account
from profiler.compare import ACTIVE, CLOCK, INSTRUCTIONS, LATENCY, RATE, WARPS, Comparison, compare, explain
from profiler.errors import NotComparableError, ReportError, UsageError
from profiler.model import Conditions, Metric, Report, Setting, Work
from profiler.ncu_parse import load
from profiler.vocabulary import metrics_for_accounting

DEMO = Path(__file__).parent / "captures" / "trial"
CAPTURES = Path(__file__).parent / "captures"


def books(path: Path) -> Report:
    return load(path, metrics=metrics_for_accounting(), instances=False, sources=False)


@pytest.fixture(scope="module")
def demo() -> tuple[Report, Report]:
    return books(DEMO / "q6k_byte_loads.sm90.ncu-rep"), books(DEMO / "q6k_wide_loads.sm90.ncu-rep")


def assert_closes(c: Comparison) -> None:
    assert c.delta_ns is not None
    assert c.remainder_ns is not None
    total = math.fsum(t.delta_ns for t in c.terms) + c.remainder_ns
    assert total == pytest.approx(c.delta_ns, abs=1e-4), "terms and remainder must give the change to the nanosecond"
    for factor in c.factors:
        leaves = math.fsum(t.delta_ns for t in c.terms if t.factor == factor.factor)
        assert leaves == pytest.approx(factor.delta_ns, abs=1e-6 * max(1.0, abs(factor.delta_ns)))


def without(a: Account, *metrics: str) -> Account:
    """The same launch as if these metrics had not been collected."""
    kept = {n: m for n, m in a.launch.metrics.items() if not any(n.startswith(x) for x in metrics)}
    return account(replace(a.launch, metrics=kept))


def test_the_demo_pair_is_explained_as_the_campaign_understood_it(demo: tuple[Report, Report]) -> None:
    c = compare(*demo)
    assert_closes(c)
    assert c.delta_ns == 752416 - 2246368
    assert c.delta_pct == pytest.approx(-66.505, abs=1e-3)
    shares = {t.factor: t.share_pct for t in c.factors}
    assert shares[INSTRUCTIONS] == pytest.approx(94.8, abs=0.1)
    assert shares[LATENCY] == pytest.approx(6.8, abs=0.1)
    assert c.remainder_ns == pytest.approx(0.0, abs=1.0)
    states = {t.detail: t for t in c.terms if t.factor == LATENCY}
    assert states["long_scoreboard"].before == pytest.approx(3.705, abs=1e-3)
    assert states["long_scoreboard"].after == pytest.approx(2.259, abs=1e-3)
    assert states["long_scoreboard"].delta_ns == min(t.delta_ns for t in states.values())
    assert c.sentence.startswith("-66.5 %, 2.99x faster: fewer instructions")
    assert not c.refusals
    assert not c.cautions


def test_comparing_backwards_changes_only_the_signs(demo: tuple[Report, Report]) -> None:
    there, back = compare(*demo), compare(demo[1], demo[0])
    for x in there.terms:
        y = next(t for t in back.terms if (t.factor, t.detail) == (x.factor, x.detail))
        assert y.delta_ns == pytest.approx(-x.delta_ns, abs=1e-6)


def test_a_launch_against_itself_has_nothing_to_explain(demo: tuple[Report, Report]) -> None:
    c = compare(demo[0], demo[0])
    assert c.delta_ns == 0
    assert all(t.delta_ns == 0 for t in c.terms)
    assert all(t.share_pct is None for t in c.terms)
    assert "small-change" in {i.rule for i in c.cautions}


def all_accounts(files: list[Path]) -> list[Account]:
    found = []
    for file in files:
        try:
            found += [account(x) for x in books(file).launches]
        except ReportError:
            continue
    return found


def complete(a: Account) -> bool:
    needed = (
        a.duration_ns,
        a.issued_per_scheduler,
        a.warp_cycles_per_issued_instruction,
        a.active_warps,
        a.active_share,
    )
    return all(needed) and a.clock_hz is not None


def test_every_pair_of_corpus_launches_closes(corpus_files: list[Path]) -> None:
    accounts = [a for a in all_accounts(corpus_files) if complete(a)]
    assert len(accounts) > 60, "the corpus holds at least sixty launches with the needed counters"
    for b, a in itertools.combinations(accounts, 2):
        c = explain(b, a, force=True)
        assert_closes(c)
        assert not c.not_collected
        assert abs(c.remainder_ns or 0.0) < 1e-4 * max(c.before_ns or 0.0, c.after_ns or 0.0)


def test_every_pair_of_own_captures_closes_or_names_what_is_missing() -> None:
    accounts = all_accounts(sorted(CAPTURES.glob("*.ncu-rep")))
    for b, a in itertools.combinations(accounts, 2):
        c = explain(b, a, force=True)
        if c.factors or c.not_collected:
            assert_closes(c)
        if not (complete(a) and complete(b)) and c.delta_ns is not None:
            assert c.not_collected


def test_a_missing_clock_stays_in_a_named_remainder(demo: tuple[Report, Report]) -> None:
    b, a = (account(r.launches[0]) for r in demo)
    c = explain(without(b, "smsp__cycles_elapsed", "gpc__cycles_elapsed"), a)
    assert_closes(c)
    assert {m.quantity for m in c.not_collected} == {ACTIVE, CLOCK}
    full = explain(b, a)
    lost = sum(t.delta_ns for t in full.factors if t.factor in (ACTIVE, CLOCK))
    assert c.remainder_ns == pytest.approx(lost, rel=1e-6)


def test_without_warp_states_latency_and_warps_become_one_factor(demo: tuple[Report, Report]) -> None:
    b, a = (account(r.launches[0]) for r in demo)
    gone = ("smsp__average_warp", "smsp__warps_active")
    c = explain(without(b, *gone), without(a, *gone))
    assert_closes(c)
    factors = {t.factor: t.delta_ns for t in c.factors}
    full = {t.factor: t.delta_ns for t in explain(b, a).factors}
    assert factors[RATE] == pytest.approx(full[LATENCY] + full[WARPS], rel=1e-4)
    assert c.remainder_ns == pytest.approx(0.0, abs=1.0)
    assert any("apart" in m.quantity and m.section == "WarpStateStats" for m in c.not_collected)


def test_opcodes_on_one_side_only_are_not_passed_off_as_change(demo: tuple[Report, Report]) -> None:
    b, a = (account(r.launches[0]) for r in demo)
    c = explain(without(b, "sass__inst_executed_per_opcode"), a)
    assert_closes(c)
    assert [t.detail for t in c.terms if t.factor == INSTRUCTIONS] == [""]


def test_without_a_duration_nothing_is_explained(demo: tuple[Report, Report]) -> None:
    b, a = (account(r.launches[0]) for r in demo)
    c = explain(without(b, "gpu__time_duration"), a)
    assert c.delta_ns is None
    assert c.remainder_ns is None
    assert not c.terms
    assert "duration was not collected" in c.sentence


def with_device(a: Account, name: str) -> Account:
    return account(replace(a.launch, device=replace(a.launch.device, name=name)))


def test_other_devices_are_refused_unless_forced(demo: tuple[Report, Report]) -> None:
    b, a = (account(r.launches[0]) for r in demo)
    other = with_device(a, "NVIDIA A100")
    refused = explain(b, other)
    assert [r.rule for r in refused.refusals] == ["device"]
    assert not refused.terms
    with pytest.raises(NotComparableError, match="different devices: NVIDIA H200"):
        compare(b, other)
    forced = compare(b, other, force=True)
    assert forced.refusals
    assert_closes(forced)


@pytest.mark.parametrize("name", ["clock_control", "cache_control", "replay_mode"])
def test_other_capture_conditions_are_refused_and_unknown_ones_flagged(demo: tuple[Report, Report], name: str) -> None:
    b, a = demo
    other = replace(a, conditions=replace(a.conditions, **{name: Setting("something else", "command line")}))
    with pytest.raises(NotComparableError, match="something else"):
        compare(b, other)
    unknown = replace(a, conditions=replace(a.conditions, **{name: Setting(None, None)}))
    c = compare(b, unknown)
    assert [i.rule for i in c.cautions] == [name]
    assert "not recorded in after" in c.cautions[0].text


def test_declared_work_must_match_or_be_divided_out(demo: tuple[Report, Report]) -> None:
    b = account(demo[0].launches[0], Work.gemm(2630, 3584, 3584))
    a = account(demo[1].launches[0], Work.gemm(2630, 3584, 7168))
    assert [r.rule for r in explain(b, a).refusals] == ["work"]
    c = compare(b, a, per_work=True)
    assert_closes(c)
    assert c.after_ns == pytest.approx(752416 / (2 * 33.78249728))
    instructions = next(t for t in c.factors if t.factor == INSTRUCTIONS)
    assert instructions.after == pytest.approx(881593.98 / (2 * 33.78249728), rel=1e-6)
    with pytest.raises(UsageError, match="--per-work needs"):
        explain(account(demo[0].launches[0]), a, per_work=True)


def test_cautions_name_versions_sections_and_clock(demo: tuple[Report, Report]) -> None:
    b, a = demo
    launch = a.launches[0]
    faster = {**launch.metrics}
    name = "gpc__cycles_elapsed.avg.per_second"
    faster[name] = Metric(name, "hz", 1.1 * (launch.number(name) or 0.0))
    changed = replace(
        a,
        conditions=replace(a.conditions, ncu_version="2020.3.0.0", driver_version="450.1"),
        launches=(replace(launch, sections=("LaunchStats",), metrics=faster),),
    )
    assert {i.rule for i in compare(b, changed).cautions} == {"ncu_version", "driver_version", "sections", "clock"}


def test_a_report_of_many_launches_must_be_narrowed_down(demo: tuple[Report, Report]) -> None:
    many = books(CAPTURES / "kinds.sm90.ncu-rep")
    with pytest.raises(UsageError, match="holds 6 launches"):
        compare(many, demo[0])


def test_frames_carry_every_term_and_the_remainder(demo: tuple[Report, Report]) -> None:
    c = compare(*demo)
    frame = c.to_frame()
    assert frame["delta_ns"].sum() == pytest.approx(c.delta_ns)
    assert list(frame.columns) == ["factor", "detail", "delta_ns", "share_pct", "before", "after", "unit"]
    assert "long_scoreboard" in c._repr_html_()
    assert Conditions() != demo[0].conditions
