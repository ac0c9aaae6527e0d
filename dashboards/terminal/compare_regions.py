"""The explanation by region -> what the terminal shows: regions, what is waited for, the code that changed most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from dashboards import units
from dashboards.terminal import bars
from dashboards.terminal.layout import columns, heading, indented, tidy
from profiler.by_region import ProducerTerm, RegionExplanation
from profiler.compare import LATENCY, Comparison
from profiler.vocabulary import WarpState

BAR = 17
REGIONS, STATES, PRODUCERS, CODE = 8, 4, 4, 6
# Parts of less than this share of the largest one are summed in one line.
SMALL = 0.02


def region_parts(c: Comparison, x: RegionExplanation, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    """Yield the tables of one pair; a split that cannot be made is a line that says why."""
    yield from _regions(x, glyphs)
    yield from _producers(c, x)
    yield from _code(x)
    if x.absent or x.problems:
        yield Text()
    for a in x.absent:
        yield indented(Text.assemble(("not collected ", "bold yellow"), f"{a.quantity}: {a.reason}"))
    for problem in x.problems:
        yield indented(Text.assemble(("note ", "bold"), problem))


def _regions(x: RegionExplanation, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    if not x.instructions:
        return
    before, after = (sum(getattr(t, side) for t in x.instructions) for side in ("before", "after"))
    source = " and ".join(dict.fromkeys(x.region_sources))
    yield heading(
        f"issued instructions {units.count(before)} -> {units.count(after)}, by region (from {source}):\n"
        "executed, effect, share of the change"
    )
    top = abs(x.instructions[0].delta_ns)
    cut = min(REGIONS, sum(abs(t.delta_ns) >= 1e-3 * top for t in x.instructions))
    big, small = x.instructions[:cut], x.instructions[cut:]
    scale = max(max(t.before, t.after) for t in x.instructions)
    rows = columns(((16, False), (20, True), (11, True), (7, True), (BAR, False)))
    for t in big:
        counts = f"{units.count(t.before)} -> {units.count(t.after)}"
        bar = bars.shadow(t.before, t.after, scale, BAR, glyphs)
        rows.add_row(t.region, counts, units.microseconds(tidy(t.delta_ns), True), units.percent(t.share_pct), bar)
    if small:
        counts = f"{units.count(sum(t.before for t in small))} -> {units.count(sum(t.after for t in small))}"
        effect, share = sum(t.delta_ns for t in small), sum(t.share_pct or 0.0 for t in small)
        known = small[0].share_pct is not None
        rows.add_row(
            f"{len(small)} smaller ones",
            counts,
            units.microseconds(_zero(effect), True),
            units.percent(tidy(share) if known else None),
            "",
        )
    yield indented(rows)


def _producers(c: Comparison, x: RegionExplanation) -> Iterator[RenderableType]:
    states = {t.detail: t for t in c.terms if t.factor == LATENCY}
    by_state: dict[WarpState, list[ProducerTerm]] = defaultdict(list)
    for t in x.producers:
        if t.state.is_stall and t.effect.value:
            by_state[t.state].append(t)
    # x.producers lead with the largest effect, so the states do too.
    shown = list(by_state)[:STATES]
    if not shown:
        return
    yield heading(
        "cy/inst by the region that is waited for (sampled ± standard error):\n"
        "mostly what, before -> after, change, effect"
    )
    rows = columns(((18, False), (15, False), (14, True), (14, True), (11, True)))
    for state in shown:
        whole = states[state.value]
        change = (whole.after or 0.0) - (whole.before or 0.0)
        rows.add_row(
            Text(state.value, "bold"),
            "",
            f"{whole.before:.3f} -> {whole.after:.3f}",
            f"{change:+.3f}        ",
            units.microseconds(whole.delta_ns, True),
        )
        terms = by_state[state]
        n = sum(abs(t.effect.value) >= SMALL * abs(terms[0].effect.value) for t in terms)
        cut = len(terms) if len(terms) <= min(n, PRODUCERS) + 1 else min(n, PRODUCERS)
        for t in terms[:cut]:
            rows.add_row(
                f"  {t.region}",
                t.mostly,
                f"{t.before.value:.3f} -> {t.after.value:.3f}",
                f"{t.change.value:+.3f} ± {t.change.standard_error:.3f}",
                units.microseconds(t.effect.value, True),
            )
        if small := terms[cut:]:
            before, after = sum(t.before.value for t in small), sum(t.after.value for t in small)
            rows.add_row(
                f"  {len(small)} smaller",
                "",
                f"{before:.3f} -> {after:.3f}",
                f"{after - before:+.3f}        ",
                units.microseconds(_zero(sum(t.effect.value for t in small)), True),
            )
    yield indented(rows)
    if len(by_state) > len(shown):
        yield indented(Text(f"and {len(by_state) - len(shown)} states with smaller changes", "dim"))


def _code(x: RegionExplanation) -> Iterator[RenderableType]:
    kinds = x.alignment.kinds[:CODE]
    if not kinds:
        return
    matched = len(x.alignment.matched)
    before, after = matched + len(x.alignment.only_before), matched + len(x.alignment.only_after)
    yield heading(
        f"Code that changed most ({before:,} -> {after:,} instructions, {matched:,} of them match):\n"
        "region, SASS (# a number), how many, executed"
    )
    rows = columns(((13, False), (31, False), (10, True), (20, True)))
    for k in kinds:
        rows.add_row(
            k.region,
            k.sass,
            f"{k.instructions_before:,} -> {k.instructions_after:,}",
            f"{units.count(k.executed_before)} -> {units.count(k.executed_after)}",
        )
    yield indented(rows)


def _zero(ns: float) -> float:
    """Drop the sign of what rounds to 0.0 us."""
    return 0.0 if abs(ns) < 50.0 else ns
