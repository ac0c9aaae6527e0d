"""Attribution closes its books on every report that is here, and names the culprits that are known."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CAPTURES, CORPUS_FILES, DEMO, REPO
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.accounting import account
from profiler.attribution import attribute_launch
from profiler.blame import OUTSIDE, Hot, Method, Row
from profiler.code import Code, Control
from profiler.errors import ReportError
from profiler.export_hot import by_line, cycles_per_executed, slots
from profiler.levers import levers_of, more_warps
from profiler.model import Instances, LaunchProfile, Metric
from profiler.ncu_parse import read
from profiler.pcsample import attribute
from profiler.regions import Regions, Span, find_regions
from profiler.vocabulary import EXECUTED_PER_PC, WarpState, metrics_for_attribution

REGION_FILE = (REPO / "tests" / "captures" / "trial" / "q6k.regions.toml").read_text()
WIDE, KINDS = DEMO[1], REPO / "tests" / "captures" / "kinds.sm90.ncu-rep"
LONG = WarpState.LONG_SCOREBOARD
SCOREBOARDS = (LONG, WarpState.SHORT_SCOREBOARD)
NO_REGIONS = Regions("inlined functions")


@functools.cache
def hots(path: Path, toml: str | None = None) -> tuple[Hot, ...]:
    """Attribute every launch of a report that was sampled."""
    try:
        report = read(path, metrics=metrics_for_attribution())
    except ReportError:
        return ()
    sampled = [x for x in report.launches if any(s.sampled_metric in x.metrics for s in WarpState)]
    return tuple(attribute_launch(report, x, toml=toml).hot for x in sampled)


def hot_of(path: Path, kernel: str, toml: str | None = None) -> Hot:
    return next(h for h in hots(path, toml) if h.account.launch.kernel == kernel)


def again(
    hot: Hot, launch: LaunchProfile | None = None, code: Code | None = None, regions: Regions = NO_REGIONS
) -> Hot:
    """Attribute anew with another launch, code or regions."""
    books = hot.account if launch is None else account(launch)
    return attribute(books, hot.code if code is None else code, regions)


def by_state(rows: Iterable[Row]) -> tuple[Counter[WarpState], Counter[WarpState]]:
    samples, lost = Counter[WarpState](), Counter[WarpState]()
    for r in rows:
        samples[r.state] += r.samples
        lost[r.state] += r.lost
    return samples, lost


def check_sums(hot: Hot) -> None:
    """Everything that is summed from rows adds up to the report's own totals."""
    launch = hot.account.launch
    samples, lost = by_state(hot.rows)
    for state in WarpState:
        assert samples[state] == (launch.number(state.sampled_metric) or 0), state
        assert lost[state] == (launch.number(state.sampled_not_issued_metric) or 0), state
    inside = sum(r.samples for r in hot.rows if r.place is not None)
    outside = sum(r.samples for r in hot.rows if r.place is None)
    assert inside + outside == hot.samples
    assert all((r.method is Method.OUTSIDE) == (r.place is None) for r in hot.rows)
    for row in hot.rows:
        assert 0 <= row.lost <= row.samples or not row.state.is_stall
        if row.producers:
            assert sum(p.weight for p in row.producers) == pytest.approx(1.0)

    for state in samples:
        causes = [c for c in hot.causes if c.state is state]
        assert sum(c.samples for c in causes) == pytest.approx(samples[state])
        assert sum(c.lost for c in causes) == pytest.approx(lost[state])
    for cause in hot.causes:
        if cause.waiters:
            assert sum(n for _, n in cause.waiters) == pytest.approx(cause.samples)

    assert sum(r.samples for r in hot.regions) == hot.samples
    assert sum(r.lost for r in hot.regions) == hot.lost
    for region in hot.regions:
        assert sum(region.states.values()) == region.samples
        rows = [r for r in hot.rows if (OUTSIDE if r.place is None else r.place.region) == region.name]
        stalls = sum(r.samples for r in rows if r.state.is_stall and r.producers)
        assert sum(region.waits_for.values()) == pytest.approx(stalls)
    assert sum(n for n, _ in by_line(hot).values()) == hot.samples

    assert sum(c.samples for c in hot.coverage) == hot.samples
    for c in hot.coverage:
        assert sum(c.by_method.values()) == c.samples == samples[c.state]
        assert 0 <= c.unique <= c.unique + c.joint <= c.samples
    for lever in levers_of(hot):
        assert 0 <= lever.expected <= lever.ceiling.value <= 100 + 1e-9
        assert 0 <= lever.waiting_expected <= lever.waiting.value <= 100 + 1e-9
    more = more_warps(hot)
    assert more is None or 0 <= more.expected <= more.ceiling <= 100


def check_executed(hot: Hot) -> None:
    """Executed counts by region add up to the counted total, and cycles per executed instruction give L * I back."""
    counts = hot.account.launch.instances(EXECUTED_PER_PC)
    total = sum(r.executed or 0 for r in hot.regions)
    assert total == sum(hot.executed.values())
    if counts is not None and counts.ids is not None:
        inside = [n for pc, n in zip(counts.ids, counts.values, strict=True) if hot.code.find(pc) is not None]
        assert total == sum(inside)
        if len(inside) == len(counts):
            assert total == hot.account.launch.number(EXECUTED_PER_PC)
    latency, issued = hot.account.warp_cycles_per_issued_instruction, hot.account.issued_instructions
    if latency is None or issued is None or not hot.samples:
        return
    counted = [r for r in hot.regions if r.executed]
    cycles = 0.0
    for r in counted:
        estimate = cycles_per_executed(hot, r.samples, r.executed)
        assert estimate is not None
        assert r.executed is not None
        cycles += estimate.value * r.executed
    assert cycles == pytest.approx(latency * issued * sum(r.samples for r in counted) / hot.samples)


def test_the_books_of_the_samples_close_on_every_report(report_path: Path) -> None:
    for hot in hots(report_path):
        check_sums(hot)
        check_executed(hot)


def test_every_own_capture_with_samples_was_checked() -> None:
    found = {path.name.split(".")[0]: len(hots(path)) for path in (*DEMO, *CAPTURES)}
    assert {name: n for name, n in found.items() if n} == {
        "q6k_byte_loads": 1, "q6k_wide_loads": 1, "cache_none": 1, "kinds": 6, "samples_only": 1,
    }  # fmt: skip


def test_of_the_demo_all_cycles_come_back_from_the_regions() -> None:
    (hot,) = hots(WIDE, REGION_FILE)
    books = hot.account
    assert books.warp_cycles_per_issued_instruction is not None
    assert books.issued_instructions is not None
    estimates = [(cycles_per_executed(hot, r.samples, r.executed), r.executed) for r in hot.regions]
    cycles = sum(e.value * n for e, n in estimates if e is not None and n is not None)
    assert cycles == pytest.approx(books.warp_cycles_per_issued_instruction * books.issued_instructions)
    parts = [slots(hot, r.lost) for r in hot.regions]
    assert sum(p.value for p in parts if p is not None) == pytest.approx(books.no_eligible_pct)


@pytest.mark.parametrize("path", DEMO, ids=lambda p: p.name)
def test_nearly_every_global_wait_of_the_demo_has_one_producer(path: Path) -> None:
    (hot,) = hots(path)
    (found,) = [c for c in hot.coverage if c.state is LONG]
    attributed = found.samples - found.by_method.get(Method.UNKNOWN, 0)
    assert attributed >= 0.99 * found.samples
    assert found.unique >= 0.99 * attributed
    assert found.by_method[Method.SCOREBOARD_REGISTER] >= 0.99 * found.samples


def test_the_wide_demo_waits_for_weights_activations_and_scales() -> None:
    (hot,) = hots(WIDE, REGION_FILE)
    waits: dict[str, float] = defaultdict(float)
    for row in hot.rows:
        if row.state is LONG:
            for p in row.producers:
                waits[p.place.region] += p.weight * row.samples
    total = sum(waits.values())
    shares = {name: 100 * n / total for name, n in waits.items()}
    for name, expected in (("weights", 38.0), ("activations", 29.0), ("scales", 31.0)):
        assert abs(shares[name] - expected) < 2.0, shares
    assert 100 - sum(shares[x] for x in ("weights", "activations", "scales")) < 2.0


def test_a_local_array_waits_for_its_index_and_for_local_memory() -> None:
    hot = hot_of(KINDS, "local_array")
    stalls = [c for c in hot.causes if c.state.is_stall]
    top = stalls[0]
    assert top.state is LONG
    assert [p.instruction.base for p in top.producers] == ["LDG"]
    assert top.producer is not None
    assert top.producer.line == 78  # a[(idx[i & 31] + i) & 63] = t ^ i
    local = {c.producer.instruction.base: c.producer.line for c in stalls if c.state is LONG and c.producer is not None}
    assert (local["LDL"], local["STL"]) == (79, 78)


def test_a_bulk_copy_is_what_its_mbarrier_wait_leads_to() -> None:
    hot = hot_of(KINDS, "bulk_copy")
    rows = [r for r in hot.rows if r.state is LONG and r.method is Method.GROUP]
    assert sum(r.samples for r in rows) >= 0.9 * by_state(hot.rows)[0][LONG]
    for row in rows:
        for p in row.producers:
            named = [p.place.instruction.base, *(c.instruction.base for c in p.chain)]
            assert "UBLKCP" in named


def test_a_cp_async_wait_is_for_the_copies_of_its_group() -> None:
    hot = hot_of(KINDS, "widths")
    (cause,) = [c for c in hot.causes if c.method is Method.GROUP and c.state is LONG]
    assert [p.instruction.base for p in cause.producers] == ["LDGSTS"]
    assert [c.instruction.base for c in cause.chain] == ["LDGDEPBAR"]
    assert cause.producer is not None
    assert cause.producer.line == 37
    assert cause.waiters[0][0].instruction.base == "BAR"  # __syncthreads() right after cp.async.wait_group
    assert cause.samples > 100


def test_two_loads_of_one_instruction_are_one_cause() -> None:
    hot = hot_of(KINDS, "saxpy")
    top = hot.causes[0]
    assert [p.instruction.base for p in top.producers] == ["LDG", "LDG"]
    (row,) = [r for r in hot.rows if r.place == top.waiters[0][0] and r.state is top.state]
    assert all(p.joint for p in row.producers)
    assert top.samples == row.samples


def with_extra_pc(launch: LaunchProfile, pc: int, amounts: dict[str, int]) -> LaunchProfile:
    metrics = dict(launch.metrics)
    for name, n in amounts.items():
        old = metrics[name]
        assert old.instances is not None
        assert old.instances.ids is not None
        assert isinstance(old.value, int | float)
        instances = Instances((*old.instances.values, n), (*old.instances.ids, pc))
        metrics[name] = Metric(name, old.unit, old.value + n, instances)
    return replace(launch, metrics=metrics)


def test_samples_outside_the_kernel_are_rows_that_say_so() -> None:
    hot = hot_of(KINDS, "saxpy")
    amounts = {LONG.sampled_metric: 40, LONG.sampled_not_issued_metric: 30, EXECUTED_PER_PC: 7}
    more = again(hot, launch=with_extra_pc(hot.account.launch, 0x10, amounts))
    check_sums(more)
    check_executed(more)
    (row,) = [r for r in more.rows if r.place is None]
    assert (row.state, row.samples, row.lost, row.method, row.producers) == (LONG, 40, 30, Method.OUTSIDE, ())
    (region,) = [r for r in more.regions if r.name == OUTSIDE]
    assert (region.samples, region.executed) == (40, None)
    (cause,) = [c for c in more.causes if c.method is Method.OUTSIDE]
    assert (cause.producers, cause.waiters) == ((), ())
    assert (more.samples, more.lost) == (hot.samples + 40, hot.lost + 30)


def test_without_code_the_books_stay_closed_and_say_why() -> None:
    bare = again(hots(WIDE)[0], code=Code("", 90, {}, ("the code is gone",)))
    check_sums(bare)
    assert {r.place for r in bare.rows} == {None}
    assert bare.problems == ("the code is gone",)
    assert [(r.name, r.executed) for r in bare.regions] == [(OUTSIDE, None)]


def test_an_architecture_that_nvdisasm_has_dropped_is_a_problem_line(corpus_files: tuple[Path, ...]) -> None:
    volta = [p for p in corpus_files if p.name.startswith("sm70")]
    if not volta:
        pytest.skip("no sm_70 report in the corpus")
    for path in volta:
        for hot in hots(path):
            check_sums(hot)
            if not hot.code.functions:
                assert hot.problems
                assert {r.method for r in hot.rows} == {Method.OUTSIDE}


@pytest.mark.parametrize("control", [None, Control(15, False, None, None, 0, 0)], ids=["unknown", "debug"])
def test_without_scheduling_codes_registers_tell_the_producer(control: Control | None) -> None:
    (hot,) = hots(WIDE)
    functions = {
        name: replace(f, instructions=tuple(replace(i, control=control) for i in f.instructions))
        for name, f in hot.code.functions.items()
    }
    bare = again(hot, code=replace(hot.code, functions=functions))
    check_sums(bare)
    methods = {r.method for r in bare.rows if r.state in SCOREBOARDS and r.producers}
    assert methods == {Method.REGISTER}
    # What the scoreboards name, registers name as well: most loads have a result that somebody reads.
    firm = {where(r): producers(r) for r in hot.rows if r.state is LONG}
    same = sum(r.samples for r in bare.rows if r.state is LONG and firm[where(r)] <= producers(r))
    assert same >= 0.9 * by_state(bare.rows)[0][LONG]


def where(row: Row) -> int | None:
    return None if row.place is None else row.place.instruction.offset


def producers(row: Row) -> set[int]:
    return {p.place.instruction.offset for p in row.producers}


def test_a_region_file_changes_names_and_no_numbers() -> None:
    (plain,), (named,) = hots(WIDE), hots(WIDE, REGION_FILE)
    for one, other in zip(plain.rows, named.rows, strict=True):
        assert (where(one), one.state, one.samples, one.lost, one.executed, one.method) == (
            where(other), other.state, other.samples, other.lost, other.executed, other.method,
        )  # fmt: skip
        assert [(p.place.instruction, p.weight) for p in one.producers] == [
            (p.place.instruction, p.weight) for p in other.producers
        ]
    assert [(c.state, c.samples, c.lost) for c in plain.causes] == [(c.state, c.samples, c.lost) for c in named.causes]
    assert {r.name for r in plain.regions} != {r.name for r in named.regions}
    assert named.region_source == "region file"
    check_sums(named)
    check_executed(named)


NAMES = ("load", "convert", "store", "rest")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(25, 46), st.integers(0, 12), st.sampled_from(NAMES)), max_size=6),
    st.permutations(NAMES),
)
def test_other_names_for_regions_keep_every_total(spans: list[tuple[int, int, str]], names: list[str]) -> None:
    hot = hot_of(KINDS, "widths")
    renamed = dict(zip(NAMES, names, strict=True))

    def attributed(rename: Callable[[str], str]) -> Hot:
        made = tuple(Span("fixture.cu", first, first + n, rename(name)) for first, n, name in spans)
        return again(hot, regions=Regions("region file", made))

    one, other = attributed(lambda name: name), attributed(lambda name: renamed[name])
    check_sums(one)
    costs = {r.name: (r.samples, r.lost, r.executed, dict(r.states)) for r in other.regions}
    for r in one.regions:
        assert costs[renamed.get(r.name, r.name)] == (r.samples, r.lost, r.executed, dict(r.states))
    assert len(costs) == len(one.regions)


def test_comments_in_the_source_name_the_region_of_a_producer() -> None:
    hot = hot_of(KINDS, "widths")
    launch = hot.account.launch
    (path,) = [p for p in launch.source_files if p.endswith("fixture.cu")]
    lines = launch.source_files[path].splitlines()
    # Comments at the ends of lines keep every line where it is.
    lines[35] += "  // @region copy"
    lines[37] += "  // @end"
    found = again(hot, regions=find_regions({path: "\n".join(lines)}))
    check_sums(found)
    copy = next(c for c in found.causes if c.method is Method.GROUP and c.state is LONG)
    assert copy.producer is not None
    assert copy.producer.region == "copy"


def test_the_corpus_was_looked_at() -> None:
    if not CORPUS_FILES:
        pytest.skip("corpus not found: no reports of strangers")
    assert sum(len(hots(p)) for p in CORPUS_FILES if p.stat().st_size) >= 50
