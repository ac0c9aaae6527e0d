"""How often to sample: from the tries so far -> the interval of the next one, and which try to keep (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiler.ncu_command import COARSEST, FINEST
from profiler.sidecar import Try

# With n samples a share p has the standard error sqrt(p (1 - p) / n): at 1000 at most 1.6 points. Many more gain
# little, as sampled shares lean from counted ones by about as much (docs/profiling.md).
ENOUGH = 1000
MOST_TRIES = 3
# A program that takes longer is not run again for its samples' sake.
PATIENCE_SECONDS = 120.0
# What dropped samples raise the interval by: a quarter of the samples.
STEP = 2
# How ncu counts: a sample every 2^(5 + value) cycles.
_BASE = 5


def next_interval(tries: Sequence[Try], enough: int = ENOUGH) -> int | None:
    """Return the interval that the next try should have, None when the tries are good, or cannot become better.

    Dropped samples come first: what is left of them may lean to one part of the launch.
    """
    last = tries[-1]
    if last.samples is None or last.cycles is None or last.cycles < 1 or len(tries) >= MOST_TRIES:
        return None
    value = round(math.log2(last.cycles)) - _BASE
    known = {round(math.log2(t.cycles)) - _BASE for t in tries if t.cycles}
    if last.lossy:
        wanted = min(COARSEST, value + STEP)
    elif last.samples < enough:
        wanted = max(FINEST, value - math.ceil(math.log2(enough / max(1, last.samples))))
    else:
        return None
    return None if wanted in known else wanted


def best(tries: Sequence[Try]) -> int:
    """Return the index of the try to keep: without dropped samples if there is one, of those with most samples."""
    return max(range(len(tries)), key=lambda i: (not tries[i].lossy, tries[i].samples or 0, i))


def told(tries: Sequence[Try], kept: int, enough: int = ENOUGH) -> str | None:
    """Say in a line what was done for the samples' sake, None where nothing was and nothing is wrong."""
    have = tries[kept]
    if have.samples is None:
        return None
    parts = [
        f"one per {t.cycles:,.0f} cycles: {t.samples:,} samples" + (", some lost" if t.lossy else "")
        for t in tries
        if t.cycles and t.samples is not None
    ]
    text = "sampled " + ", then ".join(parts) if len(tries) > 1 else ""
    if have.dropped_bytes:
        text += f"{'; ' if text else ''}{have.dropped_bytes:,} bytes of samples were dropped"
    elif have.buffer_full:
        text += f"{'; ' if text else ''}the buffer is full: what ran after {have.samples:,} samples was not sampled"
    if have.samples < enough:
        bound = 50.0 / math.sqrt(have.samples) if have.samples else None
        error = f": shares are uncertain by up to {bound:.1f} points" if bound is not None else ""
        text += f"{'; ' if text else ''}only {have.samples:,} samples{error}"
    return text or None
