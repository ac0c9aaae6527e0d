"""What the tables of the terminal share: headings, indents, borderless tables, tidy zeros."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def heading(text: str) -> RenderableType:
    """Return a bold line with an empty one above."""
    return Padding(Text(text, "bold"), (1, 0, 0, 0))


def indented(part: RenderableType) -> RenderableType:
    """Return a part two columns to the right."""
    return Padding(part, (0, 0, 0, 2))


def bar_table(name: int, first: int, second: int, bar: int) -> Table:
    """Return a table of a name, two numbers and a bar, with these widths."""
    return columns(((name, False), (first, True), (second, True), (bar, False)))


def columns(widths: tuple[tuple[int, bool], ...]) -> Table:
    """Return a table without rules; a column is its width and whether it holds numbers (right-justified)."""
    made = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for width, number in widths:
        made.add_column(width=width, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return made


def tidy(x: float | None) -> float | None:
    """Drop the sign of a zero that rounding made negative."""
    return None if x is None else 0.0 if abs(x) < 5e-4 else x
