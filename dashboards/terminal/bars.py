"""Bars of one visual language: full for what is, light for what went, dark for what came.

Without colour the three glyphs stay apart; on a terminal that cannot encode block characters they are ASCII.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a bar: ``full`` present, ``gone`` removed since before, ``grown`` added since before."""

    full: str
    gone: str
    grown: str
    parts: tuple[str, ...]
    rest: str


BLOCKS = Glyphs("█", "░", "▓", ("▓", "▒", "░"), "·")
ASCII = Glyphs("#", ".", "+", ("+", "=", "-"), ".")


def glyphs_for(console: Console) -> Glyphs:
    """Return block characters where the console's encoding has them."""
    try:
        "█▓▒░·±".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def plain(value: float, full_scale: float, width: int, glyphs: Glyphs, style: str = "cyan") -> Text:
    """Return a bar of value/full_scale of the width; at least one cell for anything that shows in the number."""
    return Text(glyphs.full * _cells(value, full_scale, width), style)


def shadow(before: float, after: float, full_scale: float, width: int, glyphs: Glyphs) -> Text:
    """Return a bar of ``after`` with ``before`` as its shadow: common part, then what went or what came."""
    b, a = _cells(before, full_scale, width), _cells(after, full_scale, width)
    bar = Text(glyphs.full * min(a, b), "cyan")
    bar.append(glyphs.gone * (b - a), "green")
    bar.append(glyphs.grown * (a - b), "red")
    return bar


def span(start: float, end: float, full_scale: float, width: int, glyphs: Glyphs) -> Text:
    """Return a floating bar of a waterfall from ``start`` to ``end``; light when the step goes down, dark when up.

    A step of less than a twentieth of a cell draws nothing.
    """
    low, high = sorted((start, end))
    if (high - low) / full_scale * width < 0.05:
        return Text()
    first = max(0, min(width - 1, round(low / full_scale * width)))
    last = max(first + 1, min(width, round(high / full_scale * width)))
    down = end < start
    return Text(" " * first).append(
        (glyphs.gone if down else glyphs.grown) * (last - first), "green" if down else "red"
    )


def stacked(shares: Sequence[float], width: int, glyphs: Glyphs) -> Text:
    """Return one bar of 100 %: the first share full, the next ones in their own glyphs, the remainder dotted."""
    bar = Text()
    marks = [(glyphs.full, "cyan"), *zip(glyphs.parts, ("red", "yellow", "magenta"), strict=True)]
    used, cumulative = 0, 0.0
    for share, (mark, style) in zip(shares, marks, strict=False):
        cumulative += share
        end = min(width, round(cumulative / 100.0 * width))
        bar.append(mark * (end - used), style)
        used = max(used, end)
    return bar.append(glyphs.rest * (width - used), "dim")


def _cells(value: float, full_scale: float, width: int) -> int:
    if value <= 0 or full_scale <= 0:
        return 0
    return max(1 if value / full_scale > 0.005 else 0, min(width, round(value / full_scale * width)))
