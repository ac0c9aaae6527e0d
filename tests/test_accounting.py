"""The books of every launch at hand close, hold nothing that was not collected, and match numbers read by hand."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiler import vocabulary as v
from profiler.accounting import account
from profiler.books import Account, Sampled
from profiler.errors import UsageError
from profiler.model import LaunchProfile, Metric, Report, Work
from profiler.vocabulary import MetricSpec, WarpState, states_of

# NVIDIA's names, spelled here once more so that a wrong name in the vocabulary cannot hide.
L = "smsp__average_warp_latency_per_inst_issued.ratio"
W = "smsp__warps_active.avg.per_cycle_active"
R = "smsp__issue_active.avg.per_cycle_active"
NO_ELIGIBLE = "smsp__issue_inst0.avg.pct_of_peak_sustained_active"
COUNTED = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+)")
SPECS = [x for x in vars(v).values() if isinstance(x, MetricSpec)] + list(v.OCCUPANCY_LIMITS.values())


def number(launch: LaunchProfile, name: str) -> float | None:
    metric = launch.metrics.get(name)
    value = metric.value if metric is not None else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def matching(launch: LaunchProfile, pattern: re.Pattern[str]) -> dict[str, float]:
    """{state as ncu spells it: value} of the metrics whose whole name matches."""
    found = {m[1]: number(launch, name) for name in launch.metrics if (m := pattern.fullmatch(name))}
    return {state: value for state, value in found.items() if value is not None}


def without(launch: LaunchProfile, *names: str) -> LaunchProfile:
    return replace(launch, metrics={n: m for n, m in launch.metrics.items() if n not in names})


def with_value(launch: LaunchProfile, name: str, value: float) -> LaunchProfile:
    return replace(launch, metrics={**launch.metrics, name: replace(launch.metrics[name], value=value)})


@pytest.fixture(scope="module")
def byte_loads(demo_paths: tuple[Path, Path], load_once: Callable[[Path], Report]) -> LaunchProfile:
    return load_once(demo_paths[0]).launches[0]


@pytest.fixture(scope="module")
def accounts(report: Report) -> list[Account]:
    return [account(x) for x in report.launches]


# ---- the identities ------------------------------------------------------------------------------------------------


def test_states_and_residual_add_up_to_warp_cycles_per_instruction_and_no_collected_state_is_left_out(
    accounts: list[Account],
) -> None:
    for a in accounts:
        counted = matching(a.launch, COUNTED)
        assert sorted(s.value for s in a.states) == sorted(counted)
        for state, value in a.states.items():
            assert value == counted[state.value]
        total = a.warp_cycles_per_issued_instruction
        if total is None or not counted:
            assert a.residual_cycles is None
            assert a.residual_pct is None
            continue
        assert a.residual_cycles is not None
        assert sum(a.states.values()) + a.residual_cycles == pytest.approx(total, abs=1e-9)
        latency = number(a.launch, L)
        if latency is not None:
            assert total == latency
            # Computed from the report alone, whatever the vocabulary knows.
            assert a.residual_cycles == pytest.approx(latency - sum(counted.values()), abs=1e-9)
            assert a.residual_pct == pytest.approx(100 * (latency - sum(counted.values())) / latency, abs=1e-9)


def test_warp_cycles_per_instruction_are_active_warps_over_issue_rate(accounts: list[Account]) -> None:
    for a in accounts:
        latency, warps, rate = (number(a.launch, name) for name in (L, W, R))
        if latency and warps is not None and rate:
            assert abs(latency - warps / rate) / latency < 1e-5
            assert a.warp_cycles_per_issued_instruction == latency
            assert a.active_warps == warps
            assert a.issue_rate == rate


def test_the_time_identity_closes_to_a_thousandth_of_a_per_cent(accounts: list[Account]) -> None:
    for a in accounts:
        if a.identity_residual_pct is not None:
            assert abs(a.identity_residual_pct) < 1e-3


COUNTED_TIME = [
    "sm75-lakshyasingh354-naive.ncu-rep",
    "sm86-aplainjane-shared_report.ncu-rep",
    "sm100-jiab-b-l8_v3.ncu-rep",
]


@pytest.mark.parametrize("name", COUNTED_TIME)
def test_the_time_identity_is_a_check_where_every_factor_was_counted_and_fails_when_one_is_wrong(
    name: str, corpus_files: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    path = corpus_files[0].parent / name
    if not path.is_file():
        pytest.skip(f"the corpus does not hold {name}")
    launch = load_once(path).launches[0]
    assert not set(account(launch).derived) & {"active_cycles", "elapsed_cycles", "active_warps", "issue_rate"}
    for factor in ("gpu__time_duration.sum", "smsp__cycles_active.avg", "smsp__cycles_elapsed.avg", W, L):
        value = number(launch, factor)
        assert value is not None
        wrong = account(with_value(launch, factor, 1.05 * value)).identity_residual_pct
        assert wrong is not None
        assert 4.5 < abs(wrong) < 5.5, factor


def test_no_eligible_is_the_rest_of_the_issue_rate(accounts: list[Account]) -> None:
    for a in accounts:
        counted, rate = number(a.launch, NO_ELIGIBLE), number(a.launch, R)
        if counted is not None:
            assert a.no_eligible_pct == counted
            assert "no_eligible_pct" not in a.derived
        elif rate is not None:
            assert a.no_eligible_pct == pytest.approx(100 * (1 - rate), abs=1e-9)
            assert "no_eligible_pct" in a.derived
        if counted is not None and rate is not None:
            assert counted == pytest.approx(100 * (1 - rate), abs=0.01)


def test_issued_and_lost_slots_are_a_hundred_and_the_parts_are_the_lost_ones(accounts: list[Account]) -> None:
    for a in accounts:
        slots = a.issue_slots
        if slots is None:
            assert a.no_eligible_pct is None
            continue
        assert slots.issued_pct + slots.lost_pct == pytest.approx(100, abs=1e-9)
        assert slots.lost_pct == a.no_eligible_pct
        raw = {s.removesuffix("_not_issued"): n for s, n in matching(a.launch, SAMPLED).items() if "_not_issued" in s}
        total = sum(raw.values())
        if not total:
            assert not slots.lost
            continue
        assert sum(x.value for x in slots.lost.values()) == pytest.approx(slots.lost_pct, abs=1e-9)
        for state, part in slots.lost.items():
            share = raw[state.sampled_metric.removeprefix("smsp__pcsamp_warps_issue_stalled_")] / total
            assert part.value == pytest.approx(slots.lost_pct * share, abs=1e-9)
            error = slots.lost_pct * math.sqrt(share * (1 - share) / total)
            assert part.standard_error == pytest.approx(error, abs=1e-9)


def test_samples_by_state_are_those_of_the_report_and_none_is_left_out(accounts: list[Account]) -> None:
    for a in accounts:
        raw = matching(a.launch, SAMPLED)
        every = {s: n for s, n in raw.items() if not s.endswith("_not_issued")}
        if not every:
            assert a.samples is None
            continue
        assert a.samples is not None
        assert a.samples.total == sum(every.values())
        assert a.samples.total_not_issued == sum(raw.values()) - sum(every.values())
        assert a.samples.total_not_issued <= a.samples.total
        for state, count in a.samples.states.items():
            assert every[state.sampled_metric.removeprefix("smsp__pcsamp_warps_issue_stalled_")] == count


def test_a_launch_has_all_states_of_its_architecture_or_none_and_never_a_foreign_one(accounts: list[Account]) -> None:
    for a in accounts:
        assert a.launch.device.compute_capability is not None
        defined = set(states_of(*a.launch.device.compute_capability))
        assert set(a.states) in (set(), defined)
        if a.samples is not None:
            assert set(a.samples.states) == defined
            assert set(a.samples.not_issued) in (set(), defined)


@pytest.mark.parametrize(
    ("capability", "count", "absent"),
    [
        ((7, 0), 18, {WarpState.GMMA}),
        ((7, 5), 18, {WarpState.GMMA}),
        ((8, 9), 18, {WarpState.GMMA}),
        ((9, 0), 19, set()),
        ((10, 0), 17, {WarpState.GMMA, WarpState.IMC_MISS}),
        ((12, 0), 17, {WarpState.GMMA, WarpState.IMC_MISS}),
    ],
)
def test_the_states_of_an_architecture(capability: tuple[int, int], count: int, absent: set[WarpState]) -> None:
    assert len(states_of(*capability)) == count
    assert set(WarpState) - set(states_of(*capability)) == absent


# ---- not collected is not zero -------------------------------------------------------------------------------------


def quantities(a: Account) -> Iterator[tuple[MetricSpec, object]]:
    """Each counted quantity of the books, and the metric that carries it."""
    yield v.DURATION, a.duration_ns
    yield v.CLOCK, a.clock_hz
    yield v.INST_ISSUED, a.issued_per_scheduler
    yield v.INST_EXECUTED, a.executed_instructions
    yield v.ISSUE_RATE, a.issue_rate
    yield v.ACTIVE_WARPS, a.active_warps
    yield v.ELIGIBLE_WARPS, a.eligible_warps
    yield v.WARP_LATENCY, a.warp_cycles_per_issued_instruction
    yield v.ACHIEVED_OCCUPANCY, a.occupancy.achieved_pct
    yield v.THEORETICAL_OCCUPANCY, a.occupancy.theoretical_pct
    yield v.OPCODES, a.opcodes or None
    yield v.SM_THROUGHPUT, a.throughputs_pct["sm"]
    yield v.MEMORY_THROUGHPUT, a.throughputs_pct["memory"]
    yield v.L1TEX_THROUGHPUT, a.throughputs_pct["l1tex"]
    yield v.L2_THROUGHPUT, a.throughputs_pct["l2"]
    yield v.DRAM_THROUGHPUT, a.throughputs_pct["dram"]


def test_each_quantity_is_either_in_the_books_or_listed_with_the_section_that_would_collect_it(
    accounts: list[Account],
) -> None:
    for a in accounts:
        listed = {x.quantity: x for x in a.not_collected}
        assert len(listed) == len(a.not_collected)
        for spec, value in quantities(a):
            assert (value is None) == (spec.label in listed), (a.launch.kernel, spec.label, value)
        assert bool(a.states) != ("Warp States" in listed)
        assert (a.samples is not None) != ("PC Samples" in listed)
        for item in a.not_collected:
            assert item.section
            assert item.metric


def test_no_advice_names_a_section_that_was_collected_and_did_not_bring_the_quantity(
    accounts: list[Account],
) -> None:
    for a in accounts:
        if a.launch.workload == "kernel":
            wrong = [x for x in a.not_collected if x.section in a.launch.sections]
            assert not wrong, (a.launch.kernel, wrong)


CYCLES = [(v.ACTIVE_CYCLES, "active_cycles"), (v.ELAPSED_CYCLES, "elapsed_cycles")]


@pytest.mark.parametrize(("spec", "field"), CYCLES, ids=[x[1] for x in CYCLES])
def test_cycles_that_are_missing_are_listed_like_every_other_quantity(
    spec: MetricSpec, field: str, capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    a = account(load_once(capture("duration_only")).launches[0])
    assert getattr(a, field) is None
    assert spec.label in {x.quantity for x in a.not_collected}


def test_each_section_of_ncu_2025_3_brings_the_metrics_that_the_vocabulary_expects_of_it(
    readable_paths: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    missing, seen = set(), set()
    for path in readable_paths:
        report = load_once(path)
        # The sections of other versions differ.
        if report.conditions.ncu_version != "2025.3.1.0":
            continue
        for launch in report.launches:
            for spec in SPECS:
                if launch.workload == "kernel" and spec.section in launch.sections:
                    seen.add(spec.section)
                    if launch.number(spec) is None and launch.instances(spec) is None:
                        missing.add((spec.name, spec.section, path.name))
    assert {"SpeedOfLight", "SchedulerStats", "WarpStateStats", "SourceCounters", "InstructionStats"} <= seen
    assert not missing


def numbers(a: Account) -> dict[tuple[str, str], tuple[object, str]]:
    return {(r.group, r.name): (r.value, r.basis) for r in a.rows()}


def test_of_a_launch_without_metrics_the_books_hold_no_number_at_all(byte_loads: LaunchProfile) -> None:
    a = account(replace(byte_loads, metrics={}))
    assert [r for r in a.rows() if r.value is not None] == []
    assert a.states == {}
    assert a.opcodes == {}
    assert a.opcode_classes == {}
    assert a.memory == ()
    assert a.samples is None
    assert a.issue_slots is None
    assert a.tensor is None
    assert a.spill_instructions is None
    assert a.passes is None
    assert a.findings == ()
    assert a.bound.kind == "unknown"
    assert a.occupancy.limits == {}
    assert a.occupancy.limiters == ()
    with_work = account(replace(byte_loads, metrics={}), Work(1e9)).per_work
    assert with_work is not None
    assert (with_work.instructions, with_work.cycles, with_work.us) == (None, None, None)
    assert (with_work.bytes_per_mac, with_work.padding_waste_pct) == (None, None)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_a_metric_taken_away_leaves_a_gap_or_a_number_marked_derived_and_never_a_zero(
    spec: MetricSpec, byte_loads: LaunchProfile
) -> None:
    before = numbers(account(byte_loads, Work.gemm(2630, 3584, 3584)))
    after = numbers(account(without(byte_loads, *spec.names), Work.gemm(2630, 3584, 3584)))
    for key, (value, basis) in after.items():
        old = before[key][0]
        if value is None or value == old or key == ("occupancy", "Limiters"):
            continue
        assert basis == "derived", (key, old, value)
        # What is derived is the same quantity, up to the noise between passes.
        assert value == pytest.approx(old, rel=2e-3, abs=1e-9), key


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_a_metric_that_is_nan_counts_as_not_collected(spec: MetricSpec, byte_loads: LaunchProfile) -> None:
    bare = {n: replace(m, value=math.nan, instances=None) for n, m in byte_loads.metrics.items() if n in spec.names}
    nan, gone = account(replace(byte_loads, metrics={**byte_loads.metrics, **bare})), without(byte_loads, *spec.names)
    assert repr(nan.rows()) == repr(account(gone).rows())
    assert nan.not_collected == account(gone).not_collected
    assert "nan" not in repr(nan.rows())
    assert "nan" not in repr([(f.text, f.evidence) for f in nan.findings])


def test_a_launch_of_the_corpus_whose_counters_are_nan_has_no_duration(
    corpus_files: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    found = [
        (x, metric)
        for p in corpus_files
        if p.stat().st_size
        for x in load_once(p).launches
        for metric in [x.metrics.get("gpu__time_duration.sum")]
        if metric is not None and isinstance(metric.value, float) and math.isnan(metric.value)
    ]
    if not found:
        pytest.skip("no launch of the corpus holds NaN as its duration")
    for launch, _ in found:
        a = account(launch)
        assert a.duration_ns is None
        assert "Duration" in {x.quantity for x in a.not_collected}
        assert all(not isinstance(r.value, float) or math.isfinite(r.value) for r in a.rows())


MAY_BE_DERIVED = {
    "elapsed_cycles": ("smsp__cycles_elapsed.avg", ("time", "Elapsed Cycles")),
    "active_cycles": ("smsp__cycles_active.avg", ("time", "Active Cycles")),
    "issue_rate": (R, ("scheduler", "Issue Rate")),
    "active_warps": (W, ("scheduler", "Active Warps Per Scheduler")),
    "no_eligible_pct": (NO_ELIGIBLE, ("scheduler", "No Eligible")),
    "warp_cycles_per_issued_instruction": (L, ("states", "Warp Cycles Per Issued Instruction")),
}


def test_a_number_that_the_report_does_not_hold_is_marked_derived_and_one_that_it_holds_is_that_number(
    accounts: list[Account],
) -> None:
    for a in accounts:
        rows = numbers(a)
        for field, (metric, key) in MAY_BE_DERIVED.items():
            value, basis = rows[key]
            counted = number(a.launch, metric)
            if counted is not None:
                assert (value, basis, field in a.derived) == (counted, "counted", False), (a.launch.kernel, field)
            elif value is not None:
                assert (basis, field in a.derived) == ("derived", True), (a.launch.kernel, field)
            else:
                assert field not in a.derived


# ---- numbers read by hand ------------------------------------------------------------------------------------------

# Read from the two demo reports with NVIDIA's reader.
BY_HAND = {
    0: {"ns": 2246368, "executed": 1312744440, "L": 9.087, "long_scoreboard": 3.705, "no_eligible": 37.02},
    1: {"ns": 752416, "executed": 465469368, "L": 8.439, "long_scoreboard": 2.259, "no_eligible": 33.73},
}


@pytest.mark.parametrize("which", BY_HAND, ids=["byte loads", "wide loads"])
def test_the_demo_has_the_numbers_that_were_read_by_hand(
    which: int, demo_paths: tuple[Path, Path], load_once: Callable[[Path], Report]
) -> None:
    (launch,) = load_once(demo_paths[which]).launches
    a, facts = account(launch), BY_HAND[which]
    assert a.duration_ns == facts["ns"]
    assert a.executed_instructions == facts["executed"]
    assert a.warp_cycles_per_issued_instruction == pytest.approx(facts["L"], abs=5e-4)
    assert a.states[WarpState.LONG_SCOREBOARD] == pytest.approx(facts["long_scoreboard"], abs=5e-4)
    assert a.no_eligible_pct == pytest.approx(facts["no_eligible"], abs=5e-3)
    assert a.occupancy.registers_per_thread == 80
    assert a.top_state is WarpState.LONG_SCOREBOARD
    assert a.passes == 21


def test_the_demo_has_the_costs_per_gmac_and_the_padding_of_its_matrix_product(byte_loads: LaunchProfile) -> None:
    work = Work.gemm(2630, 3584, 3584)
    assert work.macs == 2630 * 3584 * 3584
    assert work.gmac == pytest.approx(33.7825, abs=1e-4)
    per_work = account(byte_loads, work).per_work
    assert per_work is not None
    assert per_work.instructions == pytest.approx(38858715, abs=1)
    assert per_work.us == pytest.approx(2246.368 / 33.78249728, abs=1e-6)
    # 42 x 28 tiles of 64 tokens x 128 rows: 2688 tokens are computed, 2630 were asked for.
    assert per_work.padding_waste_pct == pytest.approx(100 * (2688 - 2630) / 2688, abs=1e-9)
    assert per_work.padding_waste_pct == pytest.approx(2.1577, abs=5e-5)


def test_bytes_per_mac_come_from_the_bytes_that_the_memory_chart_collects(
    corpus_files: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    launches = [x for p in corpus_files if p.stat().st_size for x in load_once(p).launches]
    read, written = "dram__bytes_read.sum", "dram__bytes_write.sum"
    seen = 0
    for launch in launches:
        a, b = number(launch, read), number(launch, written)
        if a is None or b is None:
            continue
        seen += 1
        per_work = account(launch, Work(1e9)).per_work
        assert per_work is not None
        assert per_work.bytes_per_mac == pytest.approx((a + b) / 1e9, rel=1e-9)
    assert seen


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_work_of_no_size_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        Work.gemm(*sizes)
    for macs in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError):
            Work(macs)


def test_the_standard_error_of_a_share_is_the_binomial_one() -> None:
    share = Sampled.share(25, 100)
    assert share.value == 25
    assert share.standard_error == pytest.approx(100 * math.sqrt(0.25 * 0.75 / 100))
    scaled = Sampled.share(25, 100, 37.02)
    assert scaled.value == pytest.approx(0.25 * 37.02)
    assert scaled.standard_error == pytest.approx(share.standard_error * 0.3702)
    assert Sampled.share(0, 10).standard_error == 0
    assert Sampled.share(10, 10) == Sampled(100.0, 0.0)


def test_the_standard_error_of_a_share_is_the_spread_of_repeated_sampling() -> None:
    rng = random.Random(9)
    n, p = 400, 0.3
    shares = [100 * sum(rng.random() < p for _ in range(n)) / n for _ in range(2000)]
    assert Sampled.share(round(n * p), n).standard_error == pytest.approx(statistics.stdev(shares), rel=0.06)


# ---- findings ------------------------------------------------------------------------------------------------------


def rules(a: Account) -> set[str]:
    return {f.rule for f in a.findings}


def test_no_stall_is_advised_against_when_the_schedulers_had_nothing_to_lose(accounts: list[Account]) -> None:
    for a in accounts:
        if a.no_eligible_pct is None or a.no_eligible_pct < 20:
            assert "stall-ceiling" not in rules(a), a.launch.kernel


def test_the_same_stalls_are_advised_against_from_twenty_per_cent_of_empty_slots_on(byte_loads: LaunchProfile) -> None:
    assert "stall-ceiling" in rules(account(byte_loads))
    assert "stall-ceiling" in rules(account(with_value(byte_loads, NO_ELIGIBLE, 20.0)))
    low = account(with_value(byte_loads, NO_ELIGIBLE, 19.9))
    assert "stall-ceiling" not in rules(low)
    assert low.states == account(byte_loads).states


def test_too_few_samples_give_a_warning_and_no_ceiling(byte_loads: LaunchProfile) -> None:
    few = {
        n: replace(m, value=min(3, m.value))
        for n, m in byte_loads.metrics.items()
        if SAMPLED.fullmatch(n) and isinstance(m.value, int | float)
    }
    a = account(replace(byte_loads, metrics={**byte_loads.metrics, **few}))
    assert a.samples is not None
    assert 0 < a.samples.total_not_issued < 100
    assert "few-samples" in rules(a)
    assert "stall-ceiling" not in rules(a)


def test_every_number_that_a_finding_cites_can_be_looked_up_in_the_report_or_in_the_books(
    accounts: list[Account],
) -> None:
    for a in accounts:
        books = [float(r.value) for r in a.rows() if isinstance(r.value, int | float)]
        samples = a.samples
        books += [samples.total, samples.total_not_issued] if samples is not None else []
        books += [x for x in (a.residual_pct, a.identity_residual_pct) if x is not None]
        for finding in a.findings:
            assert finding.text
            assert "\n" not in finding.text
            assert finding.severity in ("lever", "warning", "note")
            assert finding.evidence, finding.rule
            for cited in finding.evidence:
                assert cited.metric
                assert math.isfinite(cited.value)
                if cited.metric in v.OPCODES.names:
                    # A part of the counts by opcode.
                    assert 0 < cited.value <= sum(a.opcodes.values())
                    assert set(v.OPCODES.names) & set(a.launch.metrics)
                elif "__" in cited.metric:
                    assert cited.value == pytest.approx(number(a.launch, cited.metric)), (finding.rule, cited)
                else:
                    assert any(cited.value == pytest.approx(x) for x in books), (finding.rule, cited)


def test_a_finding_does_not_call_a_launch_short_whose_duration_was_not_collected(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    (launch,) = load_once(capture("states_only")).launches
    known = next(f for f in account(launch).findings if f.rule == "states-residual")
    assert "few microseconds" in known.text
    unknown = next(f for f in account(without(launch, v.DURATION.name)).findings if f.rule == "states-residual")
    assert "few microseconds" not in unknown.text


def test_a_metric_of_text_is_no_number(byte_loads: LaunchProfile) -> None:
    text = Metric(v.DURATION.name, "ns", "2246368")
    assert account(replace(byte_loads, metrics={**byte_loads.metrics, v.DURATION.name: text})).duration_ns is None


def test_eligible_warps_follow_from_the_states_that_hold_them(
    readable_paths: tuple[Path, ...], load_once: Callable[[Path], Report]
) -> None:
    apart = []
    for path in readable_paths:
        for launch in load_once(path).launches:
            counted = account(launch)
            metrics = {name: m for name, m in launch.metrics.items() if name not in v.ELIGIBLE_WARPS.names}
            derived = account(replace(launch, metrics=metrics))
            if "eligible_warps" in counted.derived or not counted.eligible_warps or derived.eligible_warps is None:
                continue
            assert derived.derived["eligible_warps"] == "r * (selected + not_selected)"
            apart.append(abs(derived.eligible_warps / counted.eligible_warps - 1))
    assert len(apart) >= 10
    # Counters of other passes; the largest are those of launches of a few microseconds.
    assert statistics.median(apart) < 0.005
    assert max(apart) < 0.03
