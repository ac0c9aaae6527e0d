"""What ``cyinst profile`` was asked -> captures with their books, and the change from the first to each other one.

Everything between the command line and the drawing; Python callers enter here as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from profiler import preflight as checks
from profiler.accounting import account
from profiler.books import Account
from profiler.capture import SUFFIX, Captured, capture
from profiler.compare import Comparison, explain
from profiler.errors import MissingToolError, UsageError
from profiler.export import comparison_document, report_document
from profiler.model import Metric
from profiler.ncu_command import Request, command_line, shown
from profiler.plans import plan_named
from profiler.ranges import DOMAIN
from profiler.sampling import ENOUGH
from profiler.targets import Target, program_target, specimen_targets

FOLDER = "cyinst-captures"
SCHEMA = "cyinst.profile/1"


@dataclass(frozen=True, slots=True)
class Options:
    """How to capture; the fields are the options of ``cyinst profile``."""

    plan: str = "quick"
    metrics: str | None = None
    shape: str | None = None
    kernel: str | None = None
    nvtx: str | None = None
    skip: int = 0
    output: str | None = None
    force: bool = False
    timeout: float = 600.0
    samples: int = ENOUGH
    interval: int | None = None
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    ncu: str | None = None
    split_waits: str | None = None

    @property
    def more_metrics(self) -> tuple[str, ...]:
        """The metrics beside the plan."""
        return tuple(filter(None, re.split(r"[,\s]+", self.metrics or "")))


@dataclass(frozen=True, slots=True)
class Profiled:
    """Captures in the order in which they were asked for, their books, and the changes from the first one."""

    captures: tuple[Captured, ...]
    accounts: tuple[Account, ...]
    comparisons: tuple[Comparison, ...]
    asked: tuple[str, ...] = ()

    def metrics(self, index: int) -> dict[str, Metric]:
        """Return the metrics of a capture that were asked for beside the plan, with what ncu made of their names."""
        found = self.captures[index].launch.metrics
        return {n: m for n, m in found.items() if any(n == name or n.startswith(f"{name}.") for name in self.asked)}


def targets(specs: Sequence[str], program: Sequence[str] | None, options: Options) -> list[Target]:
    """Return what to profile. Raises UsageError for options that say nothing about it, NoMatchError for names."""
    if (program is None) == (not specs):
        raise UsageError("profile takes a specimen (SPEC:VARIANT), or after -- a program and its arguments")
    if program is not None:
        if options.shape is not None:
            raise UsageError("--shape is that of a specimen; give a program its sizes among its own arguments")
        if options.split_waits:
            raise UsageError("--split-waits copies the kernels of a specimen; those of a program are its own")
        found = [program_target(program, options.kernel, options.nvtx)]
    else:
        if options.nvtx is not None:
            raise UsageError("--nvtx: a specimen's launch has a range of its own")
        found = [
            t
            for spec in specs
            for t in specimen_targets(spec, options.shape, options.kernel, split_waits=options.split_waits)
        ]
    for target in found:
        # What is malformed is told before a GPU is looked for.
        request_of(target, options)
    if len(found) > 1 and options.output is not None and options.output.endswith(SUFFIX):
        raise UsageError(f"--output {options.output}: {len(found)} launches need a folder, not one file")
    return found


def request_of(target: Target, options: Options) -> Request:
    """Return the request for one target."""
    return Request(
        program=target.program,
        plan=plan_named(options.plan),
        kernel=target.kernel,
        nvtx=target.nvtx,
        skip=options.skip,
        metrics=options.more_metrics,
        clock_control=options.clock_control,
        cache_control=options.cache_control,
        replay=options.replay,
        interval=options.interval,
        timeout=options.timeout or None,
    )


def destinations(found: Sequence[Target], options: Options, now: datetime | None = None) -> list[Path]:
    """Return where each report goes: the file that was named, else a dated name in the folder."""
    if options.output is not None and options.output.endswith(SUFFIX):
        return [Path(options.output)]
    folder, stamp = Path(options.output or FOLDER), f"{now or datetime.now():%Y%m%d-%H%M%S}"
    places: list[Path] = []
    for target in found:
        name, number = f"{stamp}-{target.label}", 2
        while (place := folder / f"{name}{SUFFIX}") in places or place.exists():
            name, number = f"{stamp}-{target.label}-{number}", number + 1
        places.append(place)
    return places


def dry_run(found: Sequence[Target], options: Options) -> list[str]:
    """Return the command lines of ncu. Without an ncu here they begin with the bare name."""
    try:
        ncu = checks.locate(options.ncu)
    except MissingToolError:
        ncu = "ncu"
    places = destinations(found, options)
    return [
        shown(command_line(ncu, request_of(target, options), place))
        for target, place in zip(found, places, strict=True)
    ]


def preflight(options: Options) -> list[str]:
    """Return lines of doubt about this machine; raises for what cannot work."""
    return checks.preflight(checks.locate(options.ncu))


def run(found: Sequence[Target], options: Options, progress: Callable[[str], None] = lambda text: None) -> Profiled:
    """Capture every target, one after the other, and close the books."""
    ncu = checks.locate(options.ncu)
    ours = any(t.program[:1] == (sys.executable,) and (t.nvtx or "").startswith(f"{DOMAIN}@") for t in found)
    if ours and find_spec("nvtx") is None:
        raise MissingToolError(
            "the launch is found by its NVTX range, and the package nvtx is not here: pip install nvtx"
        )
    requests = [request_of(target, options) for target in found]
    captures: list[Captured] = []
    for target, request, place in zip(found, requests, destinations(found, options), strict=True):
        progress(f"{target.label}: starting ncu")
        captures.append(
            capture(
                request, ncu, place, subject=target.subject, work=target.work, environment=target.environment,
                samples=options.samples, force=options.force, progress=progress,
            )
        )  # fmt: skip
    accounts = [account(one.launch, one.sidecar.work) for one in captures]
    comparisons = [
        explain(accounts[0], a, conditions=(captures[0].report.conditions, one.report.conditions))
        for one, a in zip(captures[1:], accounts[1:], strict=True)
    ]
    return Profiled(tuple(captures), tuple(accounts), tuple(comparisons), options.more_metrics)


def document(profiled: Profiled) -> dict[str, Any]:
    """Return the ``cyinst.profile/1`` document."""
    captures = [
        {
            "report": report_document(one.report, [a], one.sidecar),
            "metrics": {name: metric.value for name, metric in profiled.metrics(i).items()},
        }
        for i, (one, a) in enumerate(zip(profiled.captures, profiled.accounts, strict=True))
    ]
    return {
        "schema": SCHEMA,
        "captures": captures,
        "comparisons": [comparison_document(c) for c in profiled.comparisons],
    }
