"""What to capture -> the command line of ncu (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.errors import UsageError
from profiler.plans import Plan
from profiler.ranges import DOMAIN
from profiler.specimen import NAME

# ncu's --warp-sampling-interval: a sample every 2^(5 + value) cycles, value 0 to 31.
FINEST, COARSEST = 0, 31
_RANGE = re.compile(rf"(?:(?P<domain>{NAME.pattern})@)?(?P<name>{NAME.pattern})")


@dataclass(frozen=True, slots=True)
class Request:
    """One launch to capture: of which program, which of its launches, and how.

    ``kernel`` is a regular expression on the function name. ``nvtx`` is a range: NAME or DOMAIN@NAME of either kind, or
    else an expression of ncu's. ``skip`` counts launches that match both. ``interval`` is ncu's sampling interval, None
    lets ncu choose. ``timeout`` is in seconds, None for no limit.
    """

    program: tuple[str, ...]
    plan: Plan
    kernel: str | None = None
    nvtx: str | None = None
    skip: int = 0
    metrics: tuple[str, ...] = ()
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    interval: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.program:
            raise UsageError("there is no program to profile")
        try:
            re.compile(self.kernel or "")
        except re.error as error:
            raise UsageError(f"--kernel {self.kernel!r} is not a regular expression ({error})") from None

    @property
    def range_name(self) -> tuple[str | None, str] | None:
        """The domain (None: any) and the name of the range, None when there is none, or an expression of ncu's."""
        found = _RANGE.fullmatch((self.nvtx or "").removesuffix("/"))
        return (found["domain"], found["name"]) if found else None

    @property
    def whole_range(self) -> bool:
        """Whether the result is a range of launches, not one."""
        return self.replay.endswith("range")


def nvtx_filters(text: str) -> tuple[str, ...]:
    """Return ncu's filters for a range, of which a launch must match one.

    In ncu's language ``NAME/`` is a range that the launching thread pushed and popped, ``NAME`` one that was started
    and ended, for all threads. Where the name leaves it open, both are meant, in our domain and in the default one.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return (text,)
    names = (text,) if found["domain"] else (f"{DOMAIN}@{text}", text)
    return tuple(f"{name}{end}" for name in names for end in ("/", ""))


def command_line(ncu: str, request: Request, output: Path) -> list[str]:
    """Return the words that make ncu capture ``request`` into the file ``output``."""
    # ncu adds its suffix, and reads % in a name as the beginning of a macro.
    name = str(output).removesuffix(".ncu-rep").replace("%", "%%")
    words = [ncu, "--force-overwrite", "--export", name]
    # Always one result: a program that tunes itself inside the range would fill the disk.
    words += ["--launch-count", "1"]
    if request.skip:
        words += ["--launch-skip", str(request.skip)]
    # With NVTX also where nothing is filtered by it: the report says in which ranges the launch was.
    words += ["--nvtx"]
    for expression in nvtx_filters(request.nvtx) if request.nvtx else ():
        words += ["--nvtx-include", expression]
    if request.kernel is not None:
        words += ["--kernel-name-base", "function", "--kernel-name", f"regex:{request.kernel}"]
    words += ["--target-processes", "all", "--import-source", "yes"]
    words += ["--replay-mode", request.replay]
    words += ["--clock-control", request.clock_control, "--cache-control", request.cache_control]
    words += request.plan.options(request.metrics)
    if request.interval is not None:
        words += ["--warp-sampling-interval", str(request.interval)]
    return [*words, *request.program]


def shown(words: Sequence[str]) -> str:
    """Return a command line as a shell would take it."""
    import shlex

    return shlex.join(words)
