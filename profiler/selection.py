"""The launches that a person means: by index, by kernel name, or the longest one (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler import vocabulary as v
from profiler.errors import NoMatchError, UsageError
from profiler.model import LaunchProfile, Report


def select(report: Report, kernel: str | None, launch: int | None = None) -> list[LaunchProfile]:
    """Return the launches that the filters name. Raises NoMatchError that lists what there is."""
    chosen = list(report.launches)
    if kernel is not None:
        try:
            pattern = re.compile(kernel)
        except re.error as error:
            raise UsageError(f"--kernel {kernel!r} is not a regular expression ({error})") from None
        # The function name, not the demangled one: a pattern must not hit a template argument by accident.
        chosen = [x for x in chosen if pattern.search(x.kernel)]
        if not chosen:
            names: dict[str, int] = {}
            for x in report.launches:
                names[x.kernel] = names.get(x.kernel, 0) + 1
            listed = ", ".join(f"{name} ({n})" for name, n in list(names.items())[:8])
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            raise NoMatchError(f"{report.path}: no kernel name matches {kernel!r}; there are {listed}{more}")
    if launch is not None:
        wanted = [x for x in chosen if x.index == launch]
        if not wanted:
            have = ", ".join(str(x.index) for x in chosen[:12]) + (", ..." if len(chosen) > 12 else "")
            raise NoMatchError(f"{report.path}: there is no launch {launch}; there are {have}")
        chosen = wanted
    return chosen


def longest_sampled(launches: Iterable[LaunchProfile]) -> LaunchProfile:
    """Return the longest launch, of those with PC samples if any has them."""
    return max(launches, key=lambda x: (_has_samples(x), x.number(v.DURATION) or 0.0))


def _has_samples(launch: LaunchProfile) -> bool:
    return any(state.sampled_metric in launch.metrics for state in v.WarpState)
