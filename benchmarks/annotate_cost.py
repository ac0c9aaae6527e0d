"""What an NVTX range costs when no profiler is attached: ns per range, the median of repeats.

Run by hand: python benchmarks/annotate_cost.py
"""

from __future__ import annotations

import statistics
import time
import timeit
from contextlib import nullcontext

import nvtx

from profiler import annotate

RANGES = 100_000
REPEATS = 9

kept = nvtx.annotate("step", domain="cyinst")
empty = nullcontext()


@annotate("step")
def decorated() -> None:
    """Do nothing, in a range."""


def plain() -> None:
    """Do nothing."""


STATEMENTS = {
    "an empty context manager": "with empty: pass",
    'annotate("step")': 'with annotate("step"): pass',
    'annotate("step", process_wide=True)': 'with annotate("step", process_wide=True): pass',
    '@annotate("step"), less the call': "decorated()",
    'nvtx.annotate("step", domain="cyinst")': 'with nvtx.annotate("step", domain="cyinst"): pass',
    "nvtx.annotate, one object kept": "with kept: pass",
}


def cost(statement: str) -> float:
    """Return ns per execution."""
    # Processor time: what else the machine does is no cost of ours.
    times = timeit.repeat(statement, timer=time.process_time, globals=globals(), number=RANGES, repeat=REPEATS)
    return statistics.median(times) / RANGES * 1e9


def main() -> None:
    """Print the table."""
    call = cost("plain()")
    print(f"{'range':40} {'ns':>7}   (median of {REPEATS} x {RANGES:,})")
    for name, statement in STATEMENTS.items():
        print(f"{name:40} {cost(statement) - (call if statement == 'decorated()' else 0):7.0f}")


if __name__ == "__main__":
    main()
