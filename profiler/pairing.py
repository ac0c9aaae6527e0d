"""Two lists of launches -> pairs to compare (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from profiler.model import LaunchProfile

Pair = tuple[LaunchProfile, LaunchProfile]
Key = Callable[[LaunchProfile], Hashable | None]


def nvtx_path(launch: LaunchProfile) -> str:
    """Return the open NVTX ranges, outermost first, joined by ``/``; empty when there are none."""
    return "/".join(r.name for r in launch.nvtx)


def _nvtx_key(launch: LaunchProfile) -> Hashable | None:
    return tuple(launch.nvtx) or None


# From the firmest identity to the loosest: a rebuilt kernel may change its launch shape, its template arguments or its
# name, and still be the same step of the program. None never matches.
BY_KERNEL: tuple[Key, ...] = (
    lambda x: (x.mangled, x.grid, x.block),
    lambda x: x.mangled,
    lambda x: x.kernel,
)
BY_NVTX: tuple[Key, ...] = (_nvtx_key,)


def pair_launches(
    before: Sequence[LaunchProfile], after: Sequence[LaunchProfile], by: str = "auto"
) -> tuple[list[Pair], list[LaunchProfile], list[LaunchProfile]]:
    """Pair launches and return (pairs in order of ``before``, unpaired before, unpaired after).

    ``by``: ``kernel`` (symbol and launch shape, then symbol, then function name), ``nvtx`` (the open ranges), or
    ``auto`` (kernel, then nvtx). Equal keys pair in order. One launch left on each side is a pair under ``auto``.
    """
    keys = {"kernel": BY_KERNEL, "nvtx": BY_NVTX, "auto": BY_KERNEL + BY_NVTX}[by]
    left, right = list(before), list(after)
    pairs: list[Pair] = []
    for key in keys:
        waiting: dict[Hashable, list[LaunchProfile]] = defaultdict(list)
        for launch in right:
            waiting[key(launch)].append(launch)
        for launch in list(left):
            name = key(launch)
            if name is not None and waiting[name]:
                partner = waiting[name].pop(0)
                pairs.append((launch, partner))
                left.remove(launch)
                right.remove(partner)
    if by == "auto" and len(left) == len(right) == 1:
        pairs.append((left.pop(), right.pop()))
    return sorted(pairs, key=lambda p: p[0].index), left, right
