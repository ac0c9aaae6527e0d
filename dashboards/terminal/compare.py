"""Comparisons -> what the terminal shows: the sentence, the waterfall of the change, states with their shadow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dashboards import units
from dashboards.terminal import bars
from dashboards.terminal.compare_regions import region_parts
from dashboards.terminal.layout import bar_table, heading, indented, tidy
from profiler.books import Account
from profiler.compare import INSTRUCTIONS, LATENCY, Comparison, Term, largest
from profiler.model import LaunchProfile

WATERFALL = 36
BAR = 24
# Leaves that explain less than this share of the change are summed in one line.
SMALL_TERM_PCT = 1.0


def draw_comparisons(
    console: Console,
    comparisons: Sequence[Comparison],
    unpaired: tuple[Sequence[LaunchProfile], Sequence[LaunchProfile]],
    limit: int | None,
) -> None:
    """Print a summary row per pair when there are several, then each explanation (the ``limit`` largest changes)."""
    glyphs = bars.glyphs_for(console)
    if len(comparisons) > 1:
        console.print(_pairs_table(comparisons))
    for c in largest(comparisons, limit):
        for part in comparison_parts(c, glyphs):
            console.print(part)
    for side, launches in zip(("before", "after"), unpaired, strict=True):
        if launches:
            names = ", ".join(f"#{x.index} {x.kernel}" for x in launches[:6]) + (" ..." if len(launches) > 6 else "")
            console.print(Text(f"unpaired in {side}: {names}", "dim"))


def _pairs_table(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("before", "after"):
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=18)
    for name in ("time", "", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mostly", no_wrap=True)
    for c in comparisons:
        top = max(c.factors, key=lambda t: abs(t.delta_ns), default=None)
        table.add_row(
            f"#{c.before.launch.index} {c.before.launch.kernel}",
            f"#{c.after.launch.index} {c.after.launch.kernel}",
            units.time(c.before.duration_ns),
            units.time(c.after.duration_ns),
            units.DASH if c.delta_pct is None else f"{c.delta_pct:+.1f} %",
            "refused" if c.refusals and not c.factors else top.factor if top is not None and c.delta_ns else units.DASH,
        )
    return table


def comparison_parts(c: Comparison, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    """Yield the explanation of one pair, the sentence first."""
    yield Text()
    yield _title("before", c.before)
    yield _title("after", c.after)
    yield Text(c.sentence, "bold")
    for refusal in c.refusals:
        yield indented(Text.assemble(("refused ", "bold red"), refusal.text, (f" [{refusal.rule}]", "dim")))
    if c.factors:
        yield from _waterfall(c, glyphs)
        yield from _states(c, glyphs)
        yield from _instructions(c)
    if c.by_region is not None:
        yield from region_parts(c, c.by_region, glyphs)
    if c.factors:
        yield from _shape(c)
    notes = [(("caution ", "bold yellow"), i.text, (f" [{i.rule}]", "dim")) for i in c.cautions]
    notes += [
        (("not collected ", "bold yellow"), f"{m.quantity}: --section {m.section}", (f" [{m.metric}]", "dim"))
        for m in c.not_collected
    ]
    if notes:
        yield Text()
    for note in notes:
        yield indented(Text.assemble(*note))


def _title(side: str, a: Account) -> Text:
    launch = a.launch
    text = Text.assemble((f"{side:7}", "dim"), (f"#{launch.index} {launch.kernel}", "bold cyan"))
    if launch.grid is not None:
        text.append(f"  grid {units.dims(launch.grid)}, block {units.dims(launch.block)}")
    return text.append(f"  {launch.device.name or 'unknown device'}  {units.time(a.duration_ns)}")


def _waterfall(c: Comparison, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    assert c.before_ns is not None
    assert c.after_ns is not None
    assert c.remainder_ns is not None
    yield heading(f"The change, factor by factor{' (per GMAC)' if c.per_work else ''}: T = I * L / W / (A/E) / f")
    level = c.before_ns
    marks = [level]
    for t in c.factors:
        marks.append(marks[-1] + t.delta_ns)
    scale = max(*marks, c.after_ns)
    table = bar_table(15, 12, 8, WATERFALL)
    table.add_row("before", units.microseconds(c.before_ns), "", bars.plain(c.before_ns, scale, WATERFALL, glyphs))
    for t in c.factors:
        bar = bars.span(level, level + t.delta_ns, scale, WATERFALL, glyphs)
        table.add_row(t.factor, units.microseconds(t.delta_ns, True), units.percent(t.share_pct), bar)
        level += t.delta_ns
    share = 100.0 * c.remainder_ns / c.delta_ns if c.delta_ns else None
    bar = bars.span(level, c.after_ns, scale, WATERFALL, glyphs)
    note = "remainder" if not c.not_collected else "not collected"
    table.add_row(note, units.microseconds(tidy(c.remainder_ns), True), units.percent(tidy(share)), bar)
    table.add_row("after", units.microseconds(c.after_ns), "", bars.plain(c.after_ns, scale, WATERFALL, glyphs))
    yield indented(table)


def _states(c: Comparison, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    leaves = [t for t in c.terms if t.factor == LATENCY and t.detail]
    if not leaves:
        return
    b, a = c.before.warp_cycles_per_issued_instruction, c.after.warp_cycles_per_issued_instruction
    basis = "sampled warp state" if c.states_sampled else "warp state"
    legend = f"{glyphs.full} after, {glyphs.gone} gone, {glyphs.grown} grown"
    yield heading(f"cy/inst {units.number(b)} -> {units.number(a)}, by {basis} ({legend})")
    ranked = sorted(leaves, key=lambda t: -_size(t))
    scale = _size(ranked[0])
    big = [t for t in ranked if _size(t) >= 0.02 * scale]
    small = [t for t in ranked if t not in big]
    table = bar_table(20, 16, 12, BAR)
    for t in big:
        bar = bars.shadow(t.before or 0.0, t.after or 0.0, scale, BAR, glyphs)
        table.add_row(t.detail, f"{t.before:.3f} -> {t.after:.3f}", units.microseconds(t.delta_ns, True), bar)
    if small:
        before, after = sum(t.before or 0.0 for t in small), sum(t.after or 0.0 for t in small)
        effect = units.microseconds(sum(t.delta_ns for t in small), True)
        table.add_row(f"{len(small)} smaller ones", f"{before:.3f} -> {after:.3f}", effect, "")
    yield indented(table)


def _instructions(c: Comparison) -> Iterator[RenderableType]:
    leaves = [t for t in c.terms if t.factor == INSTRUCTIONS and t.detail]
    if not leaves:
        return
    total = next(t for t in c.factors if t.factor == INSTRUCTIONS)
    change = 100.0 * ((total.after or 0.0) / (total.before or 1.0) - 1.0)
    yield heading(
        f"instructions a scheduler{' and GMAC' if c.per_work else ''} {units.count(total.before)} -> "
        f"{units.count(total.after)} ({change:+.1f} %), by class"
    )
    ranked = sorted(leaves, key=lambda t: -abs(t.delta_ns))
    big = [t for t in ranked if abs(t.share_pct or 0.0) >= SMALL_TERM_PCT]
    small = [t for t in ranked if t not in big]
    table = bar_table(20, 22, 12, 10)
    for t in big:
        table.add_row(t.detail, _counts(t), units.microseconds(t.delta_ns, True), units.percent(t.share_pct))
    if small:
        effect = sum(t.delta_ns for t in small)
        share = sum(t.share_pct or 0.0 for t in small) if c.delta_ns else None
        name = f"{len(small)} smaller ones"
        table.add_row(name, "", units.microseconds(tidy(effect), True), units.percent(tidy(share)))
    yield indented(table)
    accesses = [{m.access.name: m.instructions for m in x.memory} for x in (c.before, c.after)]
    for name, counts in (("opcodes", (c.before.opcodes, c.after.opcodes)), ("memory", (accesses[0], accesses[1]))):
        if moved := movers(*counts):
            shown = ", ".join(f"{o} {units.count(x)} -> {units.count(y)}" for o, x, y in moved)
            yield indented(Text(f"{name} that changed most, whole launch: {shown}"))


def _size(t: Term) -> float:
    """The larger side of a leaf; a residual may be negative."""
    return max(abs(t.before or 0.0), abs(t.after or 0.0))


def movers(before: Mapping[str, int], after: Mapping[str, int], n: int = 5) -> list[tuple[str, int, int]]:
    """Return (name, count before, count after) of the n names whose executed count changed most."""
    counts = [(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    changed = [x for x in counts if x[1] != x[2]]
    return sorted(changed, key=lambda x: (-abs(x[2] - x[1]), x[0]))[:n]


def _shape(c: Comparison) -> Iterator[RenderableType]:
    """What the compiler and the schedulers made of it: one line each, before -> after."""
    b, a = c.before, c.after
    rows = [
        ("No Eligible", units.percent(b.no_eligible_pct), units.percent(a.no_eligible_pct)),
        (
            "SM throughput",
            units.percent(b.throughputs_pct.get("sm")),
            units.percent(a.throughputs_pct.get("sm")),
        ),
        (
            "achieved occupancy",
            units.percent(b.occupancy.achieved_pct),
            units.percent(a.occupancy.achieved_pct),
        ),
        ("registers a thread", str(b.occupancy.registers_per_thread), str(a.occupancy.registers_per_thread)),
    ]
    known = [f"{name} {x} -> {y}" for name, x, y in rows if units.DASH not in (x, y) and "None" not in (x, y)]
    if known:
        yield Text()
        yield indented(Text(", ".join(known)))


def _counts(t: Term) -> str:
    return f"{units.count(t.before)} -> {units.count(t.after)}"
