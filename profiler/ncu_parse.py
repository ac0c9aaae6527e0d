""".ncu-rep -> Report: the one door to NVIDIA's ``ncu_report`` module.

``load`` reads in a child process, because the native reader may die on a damaged file and must not take the caller
with it; the child runs ``_serve``. What it answered before comes from the cache. ``read`` does the work in the calling
process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.container import MAGIC, ZSTD_MAGIC, Container, read_container
from profiler.errors import MissingToolError, ReportError
from profiler.model import Device, Instances, LaunchProfile, Metric, NvtxRange, Report, Scalar
from profiler.vocabulary import (
    DEVICE_CC_MAJOR,
    DEVICE_CC_MINOR,
    DEVICE_MAX_WARPS,
    DEVICE_NAME,
    DEVICE_SCHEDULERS,
    DEVICE_SM_COUNT,
    LAUNCH_DIMS,
    OPCODES,
)

if TYPE_CHECKING:
    from profiler.kept_reports import Entry

# ncu_report's IAction.WorkloadType_*.
_WORKLOADS = {0: "kernel", 1: "range", 2: "cmdlist", 3: "graph", 4: "subgrid schedule"}
# ncu_report's IMetric.ValueKind_*: strings, floating point, integers.
_STRINGS, _FLOATS, _INTEGERS = {1, 2}, {3, 4}, {5, 6}

_ADVICE = "capture it again, or open it with the Nsight Compute that wrote it"


def load(
    path: str | os.PathLike[str],
    *,
    metrics: Collection[str] | None = None,
    instances: bool = True,
    sources: bool = True,
    timeout: float | None = None,
) -> Report:
    """Read a report in a child process, or take the same answer from the cache, and return it.

    ``metrics`` limits what is read to the named metrics (default: all of them). ``instances=False`` leaves out the
    per-PC instances, which are most of a report (per-opcode instances are always read); ``sources=False`` the embedded
    source files. ``timeout`` in seconds, by default 60 plus one for each MB.

    Raises ReportError when the file is missing, is not a report, is damaged beyond use, or the reader dies on it.
    """
    return start(path, metrics=metrics, instances=instances, sources=sources, timeout=timeout).result()


def start(
    path: str | os.PathLike[str],
    *,
    metrics: Collection[str] | None = None,
    instances: bool = True,
    sources: bool = True,
    timeout: float | None = None,
) -> Reading:
    """Begin what ``load`` does and return at once; raises ReportError for a file that need not be opened to refuse."""
    # The child, which imports this module too, has no use for it.
    from profiler import kept_reports

    file = _checked(path)
    entry = kept_reports.find(file, metrics, instances, sources)
    kept = None if entry is None else entry.recall()
    if kept is not None:
        return Reading(str(path), report=kept)
    request = pickle.dumps((str(file), None if metrics is None else frozenset(metrics), instances, sources))
    seconds = timeout if timeout is not None else 60 + file.stat().st_size / 1e6
    root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, known] if known else [root])}
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", "from profiler.ncu_parse import _serve; _serve()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert child.stdin is not None
    # A child that died at once is told by its exit code.
    with contextlib.suppress(OSError):
        child.stdin.write(request)
        child.stdin.close()
    child.stdin = None
    return Reading(str(path), child, seconds, time.monotonic() + seconds, entry)


@dataclass(eq=False)
class Reading:
    """A report that a child process is reading, or that was read before: ``report``, and no child."""

    path: str
    child: subprocess.Popen[bytes] | None = None
    seconds: float = 0.0
    deadline: float = 0.0
    entry: Entry | None = None
    report: Report | None = None

    def cancel(self) -> None:
        """End the child if it still runs; a second call, or one after ``result``, does nothing."""
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.communicate()

    def result(self) -> Report:
        """Wait for the report; errors as ``load``."""
        if self.report is not None:
            return self.report
        assert self.child is not None
        try:
            out, err = self.child.communicate(timeout=max(0.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ReportError(f"{self.path}: the reader did not finish within {self.seconds:g} s; {_ADVICE}") from None
        finally:
            # Also when interrupted: no orphan reader.
            self.cancel()
        if self.child.returncode != 0 or not out:
            raise ReportError(
                f"{self.path}: the report is damaged: the reader {_death(self.child.returncode, err)}; {_ADVICE}"
            )
        try:
            answer = pickle.loads(out)
        except Exception as error:
            text = f"{self.path}: the report is damaged: the reader's answer is ({_one_line(error)})"
            raise ReportError(text) from error
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Report)
        if self.entry is not None:
            self.entry.keep(answer, out)
        return answer


def read(
    path: str | os.PathLike[str],
    *,
    metrics: Collection[str] | None = None,
    instances: bool = True,
    sources: bool = True,
) -> Report:
    """Read a report in this process; ``load`` does the same behind a process boundary. Same arguments and errors."""
    file = _checked(path)
    try:
        import ncu_report
    except ImportError as error:
        raise MissingToolError(f"NVIDIA's reader cannot be imported ({error}): pip install ncu-report") from error
    container = read_container(file.read_bytes())
    try:
        context = ncu_report.load_report(str(file))
        # A file that is no report gives no context, or one without ranges; neither raises.
        ranges = [context.range_by_idx(i) for i in range(context.num_ranges())] if context else []
    except Exception as error:  # the SWIG module raises bare RuntimeError, ValueError and its own kinds
        raise ReportError(f"{path}: the reader refused the report ({_one_line(error)}); {_ADVICE}") from error
    launches: list[LaunchProfile] = []
    problems = list(container.problems)
    for range_index, one in enumerate(ranges):
        for action_index in range(one.num_actions()):
            index = len(launches)
            try:
                action = one.action_by_idx(action_index)
                launch = _launch(
                    action,
                    index,
                    range_index,
                    action_index,
                    metrics,
                    instances,
                    sources,
                )
            except Exception as error:
                problems.append(f"launch {index} cannot be read ({_one_line(error)})")
                continue
            if not launch.metrics and not action.metric_names():
                problems.append(f"launch {index} ({launch.kernel or 'no name'}) holds no metrics and is left out")
                continue
            launches.append(launch)
    if not launches:
        why = "; ".join(problems) or "no kernel was profiled into it"
        raise ReportError(f"{path}: no launch can be read from the report ({why}); {_ADVICE}")
    return Report(str(path), tuple(_with_locks(launches, container)), container.conditions, tuple(problems))


def _checked(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if not file.exists():
        raise ReportError(f"{path}: no such file")
    if file.is_dir():
        raise ReportError(f"{path}: is a folder; name the .ncu-rep file in it")
    try:
        with file.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror})") from error
    if not head:
        raise ReportError(f"{path}: the file is empty; was the capture interrupted? {_ADVICE}")
    if head == ZSTD_MAGIC and file.suffix != ".ncu-repz":
        raise ReportError(f"{path}: a compressed report; NVIDIA's reader wants the suffix .ncu-repz: rename it")
    if head == MAGIC and file.suffix == ".ncu-repz":
        raise ReportError(f"{path}: not compressed; NVIDIA's reader wants the suffix .ncu-rep: rename it")
    if head != MAGIC and head != ZSTD_MAGIC:
        raise ReportError(f"{path}: not an Nsight Compute report (no NVR mark at its start); give the .ncu-rep file")
    return file


def _launch(
    action: Any,
    index: int,
    range_index: int,
    action_index: int,
    wanted: Collection[str] | None,
    instances: bool,
    sources: bool,
) -> LaunchProfile:
    metrics: dict[str, Metric] = {}
    for name in action.metric_names():
        if wanted is None or name in wanted:
            metric = action.metric_by_name(name)
            if metric is not None:
                metrics[name] = _metric(name, metric, instances or name in OPCODES.names)
    workload = _WORKLOADS.get(action.workload_type(), "unknown")
    # A range or graph carries the dimensions of one of its kernels; they describe nothing.
    grid, block, cluster = (
        _dims(metrics, kind) if workload == "kernel" else None for kind in ("grid", "block", "cluster")
    )
    return LaunchProfile(
        index=index,
        range_index=range_index,
        action_index=action_index,
        workload=workload,
        kernel=action.name(action.NameBase_FUNCTION),
        demangled=action.name(action.NameBase_DEMANGLED),
        mangled=action.name(action.NameBase_MANGLED),
        device=_device(metrics),
        grid=grid,
        block=block,
        cluster=cluster,
        nvtx=_nvtx(action.nvtx_state()),
        sections=tuple(section.identifier() for section in action.sections()),
        metrics=metrics,
        source_files=dict(action.source_files()) if sources else {},
    )


def _metric(name: str, metric: Any, instances: bool) -> Metric:
    """Read a metric once. ``has_value`` is false for metrics that hold instances only; their value stays None."""
    value: Scalar | None = _scalar(metric) if metric.has_value() else None
    return Metric(name, metric.unit() or "", value, _instances(metric) if instances else None)


def _scalar(metric: Any) -> Scalar | None:
    value = metric.value()
    return value if isinstance(value, int | float | str) else None


def _instances(metric: Any) -> Instances | None:
    count = metric.num_instances()
    if not count:
        return None
    ids = metric.correlation_ids() if metric.has_correlation_ids() else None
    return Instances(_values(metric, count), _values(ids, count) if ids is not None else None)


def _values(metric: Any, count: int) -> tuple[Scalar, ...]:
    """All instances, by the typed accessor, which costs a third of the generic ``value(i)``."""
    # Instances may be of another kind than the total: numa__cpu_affinity is an integer, its instances are strings.
    kind = metric.kind(0) if count else metric.kind()
    if kind in _INTEGERS:
        return tuple(map(metric.as_uint64, range(count)))
    if kind in _FLOATS:
        return tuple(map(metric.as_double, range(count)))
    return tuple(map(metric.as_string if kind in _STRINGS else metric.value, range(count)))


def _device(metrics: Mapping[str, Metric]) -> Device:
    name = _value(metrics, DEVICE_NAME)
    major, minor = _integer(metrics, DEVICE_CC_MAJOR), _integer(metrics, DEVICE_CC_MINOR)
    return Device(
        name=name if isinstance(name, str) else None,
        compute_capability=(major, minor) if major is not None and minor is not None else None,
        sm_count=_integer(metrics, DEVICE_SM_COUNT),
        schedulers_per_sm=_integer(metrics, DEVICE_SCHEDULERS),
        max_warps_per_scheduler=_integer(metrics, DEVICE_MAX_WARPS),
    )


def _dims(metrics: Mapping[str, Metric], kind: str) -> tuple[int, int, int] | None:
    """Return the dimensions, None when absent or zero (a launch without clusters reports 0 x 0 x 0)."""
    x, y, z = (_integer(metrics, name) for name in LAUNCH_DIMS[kind])
    return (x, y, z) if x and y and z else None


def _value(metrics: Mapping[str, Metric], name: str) -> Scalar | None:
    metric = metrics.get(name)
    return None if metric is None else metric.value


def _integer(metrics: Mapping[str, Metric], name: str) -> int | None:
    value = _value(metrics, name)
    return int(value) if isinstance(value, int | float) else None


def _nvtx(state: Any) -> tuple[NvtxRange, ...]:
    if state is None:
        return ()
    found: list[NvtxRange] = []
    for identifier in state.domains():
        domain = state.domain_by_id(identifier)
        if domain is None:
            continue
        name = domain.name() or ""
        found += [NvtxRange(name, text, "push_pop") for text in domain.push_pop_ranges()]
        found += [NvtxRange(name, text, "start_end") for text in domain.start_end_ranges()]
    return tuple(found)


def _with_locks(launches: list[LaunchProfile], container: Container) -> list[LaunchProfile]:
    """Attach each result's clock lock, when the container's results match the reader's one to one."""
    if len(container.locked) != len(launches):
        return launches
    return [replace(x, clocks_locked=lock) for x, lock in zip(launches, container.locked, strict=True)]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _death(returncode: int, stderr: bytes) -> str:
    if returncode < 0:
        import signal

        try:
            return f"died of {signal.Signals(-returncode).name}"
        except ValueError:
            return f"died of signal {-returncode}"
    last = stderr.decode(errors="replace").strip().splitlines()
    return f"stopped with exit code {returncode}" + (f" ({last[-1][:200]})" if last else "")


def _serve() -> None:
    """Child side: a pickled request on stdin, a pickled Report or CyinstError on stdout."""
    # One answer, then the end: nothing that is made here becomes garbage.
    gc.disable()
    path, metrics, instances, sources = pickle.loads(sys.stdin.buffer.read())
    # The native library may print; stdout carries the answer alone.
    answer_to = os.dup(1)
    os.dup2(2, 1)
    _bound_memory(Path(path).stat().st_size)
    answer: Report | Exception
    try:
        answer = read(path, metrics=metrics, instances=instances, sources=sources)
    except (ReportError, MissingToolError) as error:
        answer = type(error)(*error.args)
    with os.fdopen(answer_to, "wb") as out:
        pickle.dump(answer, out, protocol=pickle.HIGHEST_PROTOCOL)
    sys.stdout.flush()
    # The library's own teardown has nothing to add, and costs time.
    os._exit(0)


def _bound_memory(size: int) -> None:
    """Cap the address space, so that a flipped length cannot ask for all memory of the machine."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = 8 * 2**30 + 40 * size
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))
