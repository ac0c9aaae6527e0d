"""What profiler.ncu_parse hands over is what NVIDIA's reader says, field by field, for every launch at hand."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ncu_report
import pytest

from profiler.errors import ReportError
from profiler.model import Instances, LaunchProfile, Metric, Report
from profiler.ncu_parse import load, read
from profiler.vocabulary import OPCODES, metrics_for_accounting

ALL_UP_TO = 2000
SAMPLED = 100
pytestmark = pytest.mark.usefixtures("no_cache")


# NVIDIA's reader keeps state between reports (the unit of a derived metric can follow one read before), so both
# readings of a file are made side by side, and not taken from the memory that other tests share.
@pytest.fixture(scope="module")
def child(report_path: Path) -> Iterator[Future[Report]]:
    """The report by ``load``, under way while this process reads it too."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(load, report_path)


@pytest.fixture(scope="module")
def report(report_path: Path, child: Future[Report]) -> Report:
    return read(report_path)


@pytest.fixture(scope="module")
def context(report: Report, report_path: Path) -> Any:
    return ncu_report.load_report(str(report_path))


def pairs(context: Any, report: Report) -> Iterator[tuple[Any, LaunchProfile]]:
    """Every action of NVIDIA's reader that holds metrics, next to our launch of it."""
    actions = [
        (r, a, context.range_by_idx(r).action_by_idx(a))
        for r in range(context.num_ranges())
        for a in range(context.range_by_idx(r).num_actions())
    ]
    assert len(actions) == len(report.launches)
    for (r, a, action), launch in zip(actions, report.launches, strict=True):
        assert (launch.range_index, launch.action_index) == (r, a)
        yield action, launch


def same(a: object, b: object) -> bool:
    """Equal in type and value; NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return type(a) is type(b) and a == b


def looked_at(count: int, name: str) -> list[int]:
    if count < ALL_UP_TO:
        return list(range(count))
    return [0, count - 1, *random.Random(name).sample(range(count), SAMPLED)]


def check_instances(ours: Instances | None, theirs: Any, name: str) -> None:
    count = theirs.num_instances()
    if not count:
        assert ours is None, name
        return
    assert ours is not None, name
    assert len(ours) == len(ours.values) == count, name
    where = looked_at(count, name)
    wrong = [(i, ours.values[i], theirs.value(i)) for i in where if not same(ours.values[i], theirs.value(i))]
    assert not wrong, f"{name}: value of instance (index, ours, NVIDIA's) {wrong[:3]}"
    ids = theirs.correlation_ids() if theirs.has_correlation_ids() else None
    if ids is None:
        assert ours.ids is None, name
        return
    assert ours.ids is not None, name
    assert len(ours.ids) == count == ids.num_instances(), name
    wrong = [(i, ours.ids[i], ids.value(i)) for i in where if not same(ours.ids[i], ids.value(i))]
    assert not wrong, f"{name}: id of instance (index, ours, NVIDIA's) {wrong[:3]}"


def test_every_metric_has_the_name_unit_and_total_that_ncu_report_gives(report: Report, context: Any) -> None:
    for action, launch in pairs(context, report):
        names = action.metric_names()
        assert sorted(launch.metrics) == sorted(names), launch.kernel
        assert all(launch.metrics[n].name == n for n in names)
        for name in names:
            ours, theirs = launch.metrics[name], action.metric_by_name(name)
            assert ours.unit == theirs.unit(), name
            if theirs.has_value():
                assert same(ours.value, theirs.value()), (name, ours.value, theirs.value())
            else:
                # ncu_report answers 0 here; nothing was collected, so ours is None.
                assert ours.value is None, (name, ours.value)


def test_every_instance_value_and_correlation_id_is_the_one_of_the_generic_accessor(
    report: Report, context: Any
) -> None:
    problems = []
    for action, launch in pairs(context, report):
        for name in action.metric_names():
            try:
                check_instances(launch.metrics[name].instances, action.metric_by_name(name), name)
            except AssertionError as error:
                problems.append(f"launch {launch.index}: {str(error).splitlines()[0]}")
    assert not problems, f"{len(problems)} metrics differ, the first: {problems[:8]}"


def test_every_launch_has_the_names_workload_nvtx_and_sources_that_ncu_report_gives(
    report: Report, context: Any
) -> None:
    workloads = {
        ncu_report.IAction.WorkloadType_KERNEL: "kernel",
        ncu_report.IAction.WorkloadType_RANGE: "range",
        ncu_report.IAction.WorkloadType_CMDLIST: "cmdlist",
        ncu_report.IAction.WorkloadType_GRAPH: "graph",
        ncu_report.IAction.WorkloadType_SUBGRID_SCHEDULE: "subgrid schedule",
    }
    for number, (action, launch) in enumerate(pairs(context, report)):
        assert launch.index == number
        assert launch.kernel == action.name(ncu_report.IAction.NameBase_FUNCTION)
        assert launch.demangled == action.name(ncu_report.IAction.NameBase_DEMANGLED)
        assert launch.mangled == action.name(ncu_report.IAction.NameBase_MANGLED)
        assert launch.workload == workloads[action.workload_type()]
        assert launch.sections == tuple(s.identifier() for s in action.sections())
        assert dict(launch.source_files) == dict(action.source_files())
        assert [(x.domain, x.name, x.kind) for x in launch.nvtx] == open_ranges(action.nvtx_state())


def open_ranges(state: Any) -> list[tuple[str, str, str]]:
    """The open ranges one by one, by position, where ours come from the lists of names."""
    found = []
    for identifier in state.domains() if state is not None else ():
        domain = state.domain_by_id(identifier)
        for kind, get in (("push_pop", domain.push_pop_range), ("start_end", domain.start_end_range)):
            position = 0
            while (one := get(position)) is not None:
                found.append((domain.name(), one.name(), kind))
                position += 1
    return found


def test_every_launch_has_the_device_and_dimensions_that_its_metrics_give(report: Report, context: Any) -> None:
    for action, launch in pairs(context, report):

        def number(name: str, action: Any = action) -> Any:
            metric = action.metric_by_name(name)
            return metric.value() if metric is not None else None

        device = launch.device
        attribute = "device__attribute_"
        assert device.name == number(f"{attribute}display_name")
        major, minor = (number(f"{attribute}compute_capability_{x}") for x in ("major", "minor"))
        assert device.compute_capability == (None if major is None else (major, minor))
        assert device.cc == (None if major is None else f"{major}.{minor}")
        assert device.sm_count == number(f"{attribute}multiprocessor_count")
        assert device.schedulers_per_sm == number(f"{attribute}num_schedulers_per_multiprocessor")
        for kind, ours in (("grid", launch.grid), ("block", launch.block), ("cluster", launch.cluster)):
            theirs = tuple(number(f"launch__{kind}_dim_{axis}") for axis in "xyz")
            applies = launch.workload == "kernel" and all(theirs)
            assert ours == (theirs if applies else None), (launch.kernel, kind)
        if launch.grid is not None and launch.block is not None:
            assert math.prod(launch.grid) == number("launch__grid_size")
            assert math.prod(launch.block) == number("launch__block_size")


def test_the_child_process_returns_the_report_that_reading_in_process_gives(
    report: Report, child: Future[Report]
) -> None:
    # repr tells 1 from 1.0 and prints NaN, which equals nothing, not even itself.
    loaded = child.result()
    assert repr((loaded.path, loaded.conditions, loaded.problems)) == repr(
        (report.path, report.conditions, report.problems)
    )
    accounting = metrics_for_accounting()
    for ours, theirs in zip(loaded.launches, report.launches, strict=True):
        assert repr(replace(ours, metrics={})) == repr(replace(theirs, metrics={}))
        assert list(ours.metrics) == list(theirs.metrics)
        for name, metric in ours.metrics.items():
            other = theirs.metrics[name]
            assert repr((metric.name, metric.value, metric.instances)) == repr(
                (other.name, other.value, other.instances)
            )
            assert metric.unit == other.unit or name not in accounting, name


def test_kinds_holds_the_launches_of_the_program_in_order(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    launches = load_once(capture("kinds")).launches
    assert [(x.kernel, x.grid, x.block) for x in launches] == [
        ("saxpy", (16384, 1, 1), (256, 1, 1)),
        ("widths", (2048, 1, 1), (256, 1, 1)),
        ("mma_mix", (528, 1, 1), (128, 1, 1)),
        ("local_array", (1056, 1, 1), (128, 1, 1)),
        ("bulk_copy", (2048, 1, 1), (128, 1, 1)),
        ("saxpy", (1, 1, 1), (32, 1, 1)),
    ]
    assert {x.device.name for x in launches} == {"NVIDIA H200"}
    assert {x.device.cc for x in launches} == {"9.0"}
    assert {x.device.schedulers for x in launches} == {4 * 132}


def test_kinds_holds_the_nvtx_ranges_that_the_program_opened_around_each_launch(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    step = ("<default domain>", "step", "push_pop")
    found = [[(r.domain, r.name, r.kind) for r in x.nvtx] for x in load_once(capture("kinds")).launches]
    assert found == [
        [step, ("cyinst", "saxpy.large", "push_pop")],
        [step, ("cyinst", "widths", "push_pop")],
        [step, ("<default domain>", "tensor", "start_end")],
        [step],
        [step],
        [],
    ]


def test_nested_push_pop_ranges_come_outermost_first(load_once: Callable[[Path], Report], corpus_files: Any) -> None:
    by_name = {p.name: p for p in corpus_files}
    if "sm86-nvidia-manual_nvtx.ncu-rep" not in by_name:
        pytest.skip("the corpus does not hold NVIDIA's manual_nvtx sample")
    launches = load_once(by_name["sm86-nvidia-manual_nvtx.ncu-rep"]).launches
    # By name alone the first two would sort the other way round.
    assert [[r.name for r in x.nvtx] for x in launches] == [
        ["run_test", "init_data"],
        ["run_test", "daxpy"],
        ["run_test", "check_results"],
    ]


def test_kinds_embeds_the_source_of_the_program(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    source = (capture("kinds").parent / "fixture.cu").read_text()
    for launch in load_once(capture("kinds")).launches:
        assert [text for name, text in launch.source_files.items() if name.endswith("/fixture.cu")] == [source]


@pytest.mark.parametrize(("name", "workload"), [("range_replay", "range"), ("graph", "graph")])
def test_a_range_or_graph_is_called_one_and_claims_no_dimensions(
    name: str, workload: str, capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    (launch,) = load_once(capture(name)).launches
    assert launch.workload == workload
    assert (launch.grid, launch.block, launch.cluster) == (None, None, None)
    assert launch.metrics


def test_leaving_out_instances_and_sources_leaves_out_these_and_nothing_else(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    whole = load_once(capture("kinds"))
    slim = read(capture("kinds"), instances=False, sources=False)
    for full, bare in zip(whole.launches, slim.launches, strict=True):
        assert full.source_files
        assert not bare.source_files
        assert list(bare.metrics) == list(full.metrics)
        for name, metric in bare.metrics.items():
            kept = full.metrics[name].instances if name in OPCODES.names else None
            assert metric == Metric(name, full.metrics[name].unit, full.metrics[name].value, kept)
        assert bare.instances(OPCODES) is not None


def test_a_metrics_filter_reads_exactly_the_named_metrics_unchanged(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    wanted = {"gpu__time_duration.sum", OPCODES.name, "no__such_metric.sum"}
    whole = load_once(capture("kinds"))
    for reader in (read, load):
        some = reader(capture("kinds"), metrics=wanted)
        assert len(some.launches) == len(whole.launches)
        for full, few in zip(whole.launches, some.launches, strict=True):
            assert few.metrics == {n: m for n, m in full.metrics.items() if n in wanted}
            assert set(few.metrics) == wanted - {"no__such_metric.sum"}
            assert (few.kernel, few.nvtx, few.source_files) == (full.kernel, full.nvtx, full.source_files)


def test_a_metrics_filter_keeps_every_launch_even_those_without_the_named_metric(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    whole = load_once(capture("kinds"))
    some = read(capture("kinds"), metrics={"no__such_metric.sum"})
    assert [(x.index, x.kernel, dict(x.metrics)) for x in some.launches] == [
        (x.index, x.kernel, {}) for x in whole.launches
    ]
    assert some.problems == ()


def test_the_accounting_filter_keeps_the_device_and_dimensions(report: Report, report_path: Path) -> None:
    few = read(report_path, metrics=metrics_for_accounting(), instances=False, sources=False)
    assert [(x.device, x.grid, x.block, x.kernel) for x in few.launches] == [
        (x.device, x.grid, x.block, x.kernel) for x in report.launches
    ]


@pytest.mark.parametrize("reader", [read, load])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.ncu-rep", "no such file"),
        ("folder", "folder"),
        ("text.ncu-rep", "not an Nsight Compute report"),
        ("short.ncu-rep", "not an Nsight Compute report"),
        ("empty.ncu-rep", "empty"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line_that_names_the_path_and_the_cause(
    reader: Callable[..., Report], name: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.ncu-rep").write_text("Kernel Name,Metric Name\n")
    (tmp_path / "short.ncu-rep").write_bytes(b"NV")
    (tmp_path / "empty.ncu-rep").touch()
    with pytest.raises(ReportError) as caught:
        reader(tmp_path / name)
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert says in message
    assert "\n" not in message


def test_a_path_may_be_a_string_relative_and_hold_spaces(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mit Leerzeichen é"
    folder.mkdir()
    shutil.copy(capture("states_only"), folder / "a b.ncu-rep")
    monkeypatch.chdir(folder)
    assert [x.kernel for x in load("a b.ncu-rep").launches] == ["saxpy"]
    assert load("a b.ncu-rep").path == "a b.ncu-rep"


def compress(source: Path, target: Path) -> None:
    """Zstandard, by the package or the command, whichever is here."""
    try:
        import zstandard
    except ImportError:
        tool = shutil.which("zstd")
        if tool is None:
            pytest.skip("needs the zstandard package or the zstd command to write a compressed report")
        subprocess.run([tool, "-q", "-f", os.fspath(source), "-o", os.fspath(target)], check=True)
    else:
        target.write_bytes(zstandard.ZstdCompressor().compress(source.read_bytes()))


def test_a_compressed_report_holds_the_same_launches_and_conditions(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report], tmp_path: Path
) -> None:
    path = tmp_path / "kinds.ncu-repz"
    compress(capture("kinds"), path)
    plain, packed = load_once(capture("kinds")), load(path)
    assert [repr(x.metrics) for x in packed.launches] == [repr(x.metrics) for x in plain.launches]
    assert packed.conditions == plain.conditions


def test_without_an_unpacker_nothing_is_known_of_a_compressed_report_and_nothing_guessed(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kinds.ncu-repz"
    compress(capture("kinds"), path)
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    packed = read(path)
    conditions = packed.conditions
    assert conditions.ncu_version is None
    assert conditions.cache_control.value is None
    assert conditions.clock_control.value is None
    assert {x.clocks_locked for x in packed.launches} == {None}


def test_a_compressed_report_under_the_plain_suffix_is_refused_and_told_the_right_suffix(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    # NVIDIA's reader goes by the suffix: under .ncu-rep it sees an empty report.
    path = tmp_path / "kinds.ncu-rep"
    compress(capture("kinds"), path)
    with pytest.raises(ReportError) as caught:
        load(path)
    assert ".ncu-repz" in str(caught.value)
