"""Levers -> a table: what removing each culprit would win, the line, its states."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dashboards.terminal import bars
from dashboards.terminal.layout import heading, indented
from dashboards.terminal.places import Sources, name_of, source_line
from profiler.blame import Hot, Place
from profiler.levers import Kind, Lever, levers_of, more_warps
from profiler.vocabulary import WarpState


def draw_culprits(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    """Source lines by what their removal could win: waits for them and their own instructions."""
    del glyphs
    chosen = [lever for lever in levers_of(hot) if state is None or lever.state is state]
    yield heading("Culprits: what removing a line and all waits for it would win, of 100 % of the time (at most)")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for lever in chosen[:limit]:
        ceiling = lever.ceiling
        error = f" ± {ceiling.standard_error:.1f}" if ceiling.standard_error >= 0.05 else ""
        table.add_row(
            Text(f"{lever.expected:.1f} %", "bold"), f"({ceiling.value:.1f}{error})", _culprit(lever, sources)
        )
    yield table
    more = more_warps(hot)
    if more is not None and more.ceiling >= 1.0 and state is None:
        text = f"more warps, {more.possible} a scheduler instead of {more.active:.1f}, would win"
        yield indented(Text(f"{text} {more.expected:.0f} % (at most {more.ceiling:.0f})", "dim"))


def _culprit(lever: Lever, sources: Sources) -> Text:
    if lever.kind is Kind.NO_WARPS:
        return Text.assemble(("no warps", "bold"), "  schedulers without a warp: launch, tail, uneven blocks")
    what = "idle lanes" if lever.kind is Kind.IDLE_LANES else lever.state.value if lever.state else ""
    body = Text.assemble((what, "bold"), "  ")
    body.append(" and ".join(dict.fromkeys(_stack(place) for place in lever.places[:3])))
    if len(lever.places) > 3:
        body.append(f" and {len(lever.places) - 3} more")
    if source := source_line(lever.places[0], sources):
        body.append(f"\n   {source}")
    states = ", ".join(f"{s.value} {x:.1f} %" for s, x in list(lever.states.items())[:3])
    body.append(f"\n   warp time: {states}", "dim")
    if lever.waiting_expected < lever.expected - 5.0 and lever.state is not None and lever.state.is_stall:
        body.append(f"; with the same instructions and no {what}: {lever.waiting_expected:.1f} %", "dim")
    return body


def _stack(place: Place) -> str:
    """Return where a line stands and, when it was inlined, where it was called."""
    names = [f"{f.file.replace(chr(92), '/').rpartition('/')[2]}:{f.line}" for f in place.instruction.frames]
    start = names.index(name_of(place)) if name_of(place) in names else 0
    return " < ".join(names[start : start + 3]) or name_of(place)
