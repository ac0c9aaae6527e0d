"""How often a scheduler issues when its warps compete for its one issue slot a cycle (pure).

A scheduler and its warps are the machine repairman's problem: a warp stalls for ``think`` cycles, then queues for a
slot that takes one cycle. Mean value analysis (Reiser and Lavenberg, JACM 1980) gives the throughput of such a closed
queue exactly, for stalls of any distribution and exponential service.
"""

from __future__ import annotations

import math


def issue_rate(warps: float, think: float) -> float:
    """Return instructions a cycle (0..1) for ``warps`` (may be fractional) that stall ``think`` cycles for each.

    Between whole numbers of warps it is interpolated.
    """
    whole = math.floor(warps)
    queue = rate = below = 0.0
    for n in range(1, whole + 2):
        below = rate
        response = 1.0 + queue
        rate = n / (think + response)
        queue = rate * response
    return below + (warps - whole) * (rate - below)


def rate_after(rate: float, warps: float, think: float, think_after: float, warps_after: float | None = None) -> float:
    """Return the issue rate that a change of ``think`` (and of ``warps``) leads to, from the ``rate`` measured before.

    Schedulers fall short of the model, by a tenth in the median of real launches (warps do not arrive at random, and
    leave at the end): the shortfall that was measured is taken to stay.
    """
    shortfall = min(1.0, rate / issue_rate(warps, think))
    return min(1.0, max(rate, shortfall * issue_rate(warps if warps_after is None else warps_after, think_after)))
