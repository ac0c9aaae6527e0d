"""Drive ncu: one launch -> one verified .ncu-rep with its sidecar, or one line that says what stood in the way.

A report appears under its name only when it was read and holds the launch that was asked for. Everything else, also
after an interrupt, is taken away again, and nothing that was started goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from profiler import __version__, nvml, sidecar
from profiler import vocabulary as v
from profiler.accounting import samples_of
from profiler.container import read_modules
from profiler.errors import CaptureError, MissingToolError, ReportError, UsageError
from profiler.export import to_json
from profiler.model import LaunchProfile, Report, Work
from profiler.ncu_command import Request, command_line
from profiler.ncu_parse import load
from profiler.ncu_run import Outcome, run
from profiler.obstacles import obstacle
from profiler.plans import missing
from profiler.sampling import ENOUGH, PATIENCE_SECONDS, best, next_interval
from profiler.sidecar import Sidecar, Subject, Try
from profiler.targets import FACTS

SUFFIX = ".ncu-rep"
_PCI = tuple(f"device__attribute_pci_{part}_id" for part in ("domain", "bus", "device"))


@dataclass(frozen=True, slots=True)
class Captured:
    """A report that holds the one launch that was asked for, and what is known beside it."""

    path: Path
    report: Report
    sidecar: Sidecar

    @property
    def launch(self) -> LaunchProfile:
        """The launch."""
        return self.report.launches[0]


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of ncu that left a good report."""

    file: Path
    report: Report
    request: Request
    outcome: Outcome
    before: tuple[nvml.Reading, ...]
    after: tuple[nvml.Reading, ...]
    tried: Try


def capture(
    request: Request,
    ncu: str,
    destination: Path,
    *,
    subject: Subject | None = None,
    work: Work | None = None,
    environment: Mapping[str, str] | None = None,
    samples: int = ENOUGH,
    force: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Captured:
    """Capture one launch into ``destination`` (a .ncu-rep file, whose folder is made) and return it.

    ``environment`` is added to this process's own. The program is run again, with another sampling interval, when
    samples were dropped or are fewer than ``samples`` (0: never), unless it takes long. Raises CaptureError for what
    stood in the way, UsageError for a file that is there (without ``force``), MissingToolError without ncu.
    """
    _check(destination, force)
    made = _make_folder(destination.parent)
    runs: list[_Run] = []
    done = False
    hidden = destination.parent / f".{destination.name.removesuffix(SUFFIX)}.{os.getpid()}"
    try:
        interval = request.interval
        while not runs or interval is not None:
            file = hidden.with_name(f"{hidden.name}.{len(runs)}.part{SUFFIX}")
            try:
                one, subject = _run(replace(request, interval=interval), ncu, file, subject, environment, progress)
            except CaptureError:
                if not runs:
                    raise
                # A second run is for better samples alone: the first one stands.
                break
            runs.append(one)
            interval = None
            if samples and request.interval is None and one.outcome.seconds <= PATIENCE_SECONDS:
                interval = next_interval([r.tried for r in runs], samples)
        kept = best([r.tried for r in runs])
        found = _sidecar(runs, kept, destination, ncu, subject, work)
        _publish(runs[kept].file, found, destination)
        done = True
    finally:
        for leftover in destination.parent.glob(f"{_escaped(hidden.name)}.*"):
            leftover.unlink(missing_ok=True)
        for folder in () if done else reversed(made):
            with suppress(OSError):
                folder.rmdir()
    return Captured(destination, replace(runs[kept].report, path=str(destination)), found)


def _check(destination: Path, force: bool) -> None:
    if destination.suffix != SUFFIX:
        raise UsageError(f"{destination}: a report's name ends in {SUFFIX}")
    if destination.exists() and not force:
        raise UsageError(f"{destination} exists: choose another --output, or replace it with --force")


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder with its parents and return those that were not there. Raises UsageError."""
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); give --output a writable place") from None
    return list(reversed(absent))


def _escaped(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _run(
    request: Request,
    ncu: str,
    file: Path,
    subject: Subject | None,
    environment: Mapping[str, str] | None,
    progress: Callable[[str], None],
) -> tuple[_Run, Subject | None]:
    words = command_line(ncu, request, file)
    with tempfile.TemporaryDirectory(prefix="cyinst-") as folder:
        facts = Path(folder) / "launch.json"
        variables = {**os.environ, **(environment or {}), FACTS: str(facts)}
        before = nvml.read()
        try:
            outcome = run(words, timeout=request.timeout, environment=variables, progress=progress)
        except OSError as error:
            raise MissingToolError(f"{ncu}: cannot be started ({error.strerror}); name ncu with --ncu") from None
        after = nvml.read()
        subject = subject and _with_facts(subject, facts)
    problem = obstacle(outcome, request, file.is_file())
    if problem is not None:
        raise problem
    try:
        report = load(file, metrics=_read_of(request), instances=False, sources=False)
    except ReportError as error:
        raise CaptureError(f"ncu's report cannot be read: {str(error).removeprefix(f'{file}: ')}") from error
    launch = verified(report, request)
    samples = samples_of(launch)
    if samples is None:
        tried = Try(request.interval, None, None, None)
    else:
        cycles, lost = samples.interval_cycles, samples.dropped_bytes
        tried = Try(request.interval, cycles, samples.total, lost, samples.buffer_full)
    return _Run(file, report, request, outcome, before, after, tried), subject


def _read_of(request: Request) -> frozenset[str] | None:
    """Return the metrics to read: all of them where a person asked for some, whose full names ncu makes."""
    if request.metrics:
        return None
    return v.metrics_for_accounting() | frozenset(request.plan.wanted(None)) | frozenset(_PCI)


def verified(report: Report, request: Request) -> LaunchProfile:
    """Return the one launch of a report. Raises CaptureError when it is not what was asked for."""
    found = ", ".join(launch.kernel for launch in report.launches)
    if len(report.launches) != 1:
        raise CaptureError(f"one launch was asked for, and ncu's report holds {len(report.launches)}: {found}")
    (launch,) = report.launches
    expected = ("range",) if request.whole_range else ("kernel", "graph", "cmdlist")
    if launch.workload not in expected:
        raise CaptureError(f"a {expected[0]} was asked for, and ncu's report holds a {launch.workload}")
    if request.kernel is not None and launch.workload == "kernel" and not re.search(request.kernel, launch.kernel):
        raise CaptureError(f"kernel {request.kernel!r} was asked for, and ncu's report holds {launch.kernel}")
    if request.range_name is not None and launch.workload == "kernel":
        domain, name = request.range_name
        if not any(r.name == name and domain in (None, r.domain) for r in launch.nvtx):
            have = ", ".join(f"{r.domain}@{r.name}" for r in launch.nvtx) or "no range"
            raise CaptureError(f"a launch in NVTX range {request.nvtx!r} was asked for, and {found} was in {have}")
    return launch


def _with_facts(subject: Subject, facts: Path) -> Subject:
    """Add what ``cyinst launch`` said of the launch; a program that is none of ours says nothing."""
    try:
        return replace(subject, kernels=tuple(json.loads(facts.read_text(encoding="utf-8"))["kernels"]))
    except (OSError, ValueError, KeyError, TypeError):
        return subject


def _sidecar(
    runs: Sequence[_Run], kept: int, destination: Path, ncu: str, subject: Subject | None, work: Work | None
) -> Sidecar:
    one = runs[kept]
    (launch,) = one.report.launches
    pci = tuple(launch.number(name) for name in _PCI)
    card = None if None in pci else (int(pci[0] or 0), int(pci[1] or 0), int(pci[2] or 0))
    wanted = (*one.request.plan.wanted(launch.device.compute_capability), *one.request.metrics)
    known = {name for metric in launch.metrics for name in (metric, metric.rsplit(".", 1)[0])}
    return Sidecar(
        report=destination.name,
        sha256=sidecar.digest(one.file),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        cyinst=__version__,
        ncu=one.report.conditions.ncu_version,
        plan=one.request.plan.name,
        command=tuple(command_line(ncu, one.request, destination)),
        program=one.request.program,
        kernel=launch.demangled or launch.kernel,
        # ncu's progress line breaks where a launch takes long; the report knows as well.
        passes=one.outcome.passes or (None if (n := launch.number(v.PASSES)) is None else round(n)),
        seconds=round(one.outcome.seconds, 2),
        subject=subject,
        work=work,
        before=nvml.of(one.before, card),
        after=nvml.of(one.after, card),
        tries=tuple(r.tried for r in runs),
        kept=kept,
        not_collected=missing(wanted, tuple(known)),
        cubin=_cubin(one.file, launch),
    )


def _cubin(file: Path, launch: LaunchProfile) -> str | None:
    """Return the SHA-256 of the module that the launch came from, None where that is not certain."""
    index = read_modules(file.read_bytes())
    used = {key for result in index.results if result.mangled == launch.mangled for key in result.references}
    modules = [m for m in index.modules if m.reference in used]
    return hashlib.sha256(modules[0].binary).hexdigest() if len(modules) == 1 else None


def _publish(file: Path, found: Sidecar, destination: Path) -> None:
    """Give report and sidecar their names, the sidecar first: a report never stands with one that is not its own."""
    beside = sidecar.place(destination)
    part = file.with_name(f"{file.name.removesuffix(SUFFIX)}.json")
    try:
        part.write_text(to_json(found.to_dict()), encoding="utf-8")
        destination.unlink(missing_ok=True)
        part.replace(beside)
        file.replace(destination)
    except OSError as error:
        raise CaptureError(f"{destination}: cannot be written ({error.strerror})") from error
