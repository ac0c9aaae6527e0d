"""Attribution -> what the terminal shows: ranked causes, regions, the SASS around the worst spots, listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dashboards import units
from dashboards.terminal import bars
from dashboards.terminal.culprits import draw_culprits
from dashboards.terminal.layout import heading, indented
from dashboards.terminal.places import Sources, name_of, source_line
from profiler.blame import UNMARKED, Cause, Hot, Place, Row
from profiler.books import Sampled
from profiler.code import Instruction
from profiler.export_hot import by_line, cycles_per_executed, slots
from profiler.vocabulary import WarpState

LIMIT = 6
CULPRITS = 3
AROUND = 4


def draw_hot(console: Console, hot: Hot, by: str, state: WarpState | None, limit: int | None, sources: Sources) -> None:
    """Print the default view (``by="cause"``) or one ranking; ``sources`` maps file names to their lines."""
    glyphs = bars.glyphs_for(console)
    console.print(_title(hot))
    console.print(Text(sentence(hot, state), "bold"))
    if any(state in (None, r.state) for r in hot.rows):
        ranking = {
            "cause": _causes, "culprit": draw_culprits, "instruction": _instructions, "line": _lines,
            "region": _regions, "state": _states,
        }  # fmt: skip
        if by == "cause" and state is None:
            for part in draw_culprits(hot, None, CULPRITS, glyphs, sources):
                console.print(part)
        for part in ranking[by](hot, state, limit or LIMIT, glyphs, sources):
            console.print(part)
        if by == "cause":
            for part in _default_rest(hot, state, glyphs, sources):
                console.print(part)
    for problem in hot.problems:
        console.print(Text.assemble(("note ", "bold"), problem))


def sentence(hot: Hot, state: WarpState | None = None) -> str:
    """Return what costs most (of a state), in a sentence: state, producer, where it is waited for."""
    worst = _worst(hot, state)
    if hot.rows and not hot.code.functions:
        return f"The kernel's machine code cannot be read, so its {hot.samples:,} samples name no instruction."
    if worst is None and state is not None:
        return f"No sample of this kernel's code is in {state.value}."
    if worst is None:
        return "The report holds no PC samples of this kernel's code: nothing can be attributed."
    assert worst.producer is not None
    where = _region_words(worst)
    cost = slots(hot, worst.lost)
    share = Sampled.share(worst.samples, hot.samples)
    price = f"{cost.value:.1f} of 100 issue slots" if cost is not None else f"{share.value:.1f} % of the samples"
    also = f" and {_short(worst.producers[1])}" if len(worst.producers) == 2 else ""
    also = f" and {len(worst.producers) - 1} others" if len(worst.producers) > 2 else also
    return f"{price} are lost to {worst.state.value} on {_short(worst.producer)}{also}{where}."


def _worst(hot: Hot, state: WarpState | None) -> Cause | None:
    chosen = (c for c in hot.causes if (c.state is state if state is not None else c.state.is_stall))
    return next((c for c in chosen if c.producer is not None), None)


def _region_words(c: Cause) -> str:
    assert c.producer is not None
    home = f" in {c.producer.region}" if c.producer.region != UNMARKED else ""
    waiter = c.waiters[0][0] if c.waiters else c.producer
    if waiter.instruction in [p.instruction for p in c.producers]:
        return home
    inside = f" in {waiter.region}" if waiter.region not in (c.producer.region, UNMARKED) else ""
    return f"{home}, waited for at {name_of(waiter)}{inside}"


def _title(hot: Hot) -> Text:
    a = hot.account
    text = Text.assemble((f"#{a.launch.index} {a.launch.kernel}", "bold cyan"))
    text.append(f"  {a.launch.device.name or 'unknown device'}  {units.time(a.duration_ns)}  ")
    interval = a.samples.interval_cycles if a.samples is not None else None
    every = f", one per {interval:,.0f} cycles" if interval else ""
    return text.append(f"{hot.samples:,} samples{every}, {hot.lost:,} in empty slots", "dim")


def _causes(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    del glyphs
    chosen = [c for c in hot.causes if (c.state is state if state is not None else c.state.is_stall)]
    yield heading(f"Causes: producer -> where it is waited for ({_unit(hot)} ± standard error, share of samples)")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for c in chosen[:limit]:
        share = Sampled.share(c.samples, hot.samples)
        body = Text.assemble((c.state.value, "bold"), "  ")
        body.append(_long(c.producer, sources) if c.producer is not None else c.method.value)
        for other in c.producers[1:4]:
            body.append(f"\nand {_short(other)}")
        if len(c.producers) > 4:
            body.append(f"\nand {len(c.producers) - 4} more, waited for together")
        waiters = [w for w in c.waiters if w[0].instruction not in [p.instruction for p in c.producers]]
        for place, n in waiters[:2]:
            part = f" {100 * n / c.samples:.0f} %" if len(waiters) > 1 and c.samples else ""
            body.append(f"\n-> {_short(place)}{part}", "dim")
        if len(waiters) > 2:
            body.append(f"\n-> and {len(waiters) - 2} more", "dim")
        extra = [c.method.value]
        if c.loop_carried:
            extra.append(f"{c.loop_carried} iteration{'s' * (c.loop_carried > 1)} earlier")
        if c.note:
            extra.append(c.note)
        body.append(f"\n[{', '.join(extra)}]", "dim")
        for place in c.chain[:2]:
            body.append(f"\n   behind it: {_short(place)}", "dim")
        table.add_row(_cost(slots(hot, c.lost)), f"{share.value:.1f} %", body)
    yield table
    rest = chosen[limit:]
    if rest:
        lost = slots(hot, sum(c.lost for c in rest))
        yield indented(Text(f"{len(rest)} smaller causes: {_cost(lost)} ({_unit(hot)})", "dim"))


def _default_rest(hot: Hot, state: WarpState | None, glyphs: bars.Glyphs, sources: Sources) -> Iterator[RenderableType]:
    yield from _regions(hot, state, LIMIT, glyphs, sources)
    worst = _worst(hot, state)
    if worst is not None and worst.waiters:
        place = worst.waiters[0][0]
        yield heading(f"Around the worst spot, {name_of(place)} (ctl: stall count, scoreboards set w r, waited on ?)")
        yield from listing(hot, sources, around=(place.function, place.instruction.offset))


def _regions(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    del state, sources
    yield heading(f"Regions (from {hot.region_source})")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("region", no_wrap=True, max_width=16, overflow="ellipsis")
    for name in ("samples", "lost slots", "executed", "cy/inst"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("top state", no_wrap=True)
    table.add_column("", no_wrap=True)
    top = hot.regions[0].samples if hot.regions else 1
    for r in hot.regions[:limit]:
        share = Sampled.share(r.samples, hot.samples)
        cycles = cycles_per_executed(hot, r.samples, r.executed)
        stalls = [s for s in r.states if s.is_stall]
        table.add_row(
            r.name,
            f"{share.value:.1f} %",
            _cost(slots(hot, r.lost)),
            units.count(r.executed),
            units.number(cycles.value if cycles is not None else None, 1),
            stalls[0].value if stalls else units.DASH,
            bars.plain(r.samples, top or 1, 8, glyphs),
        )
    yield table
    flows = [
        (producer, r.name, n)
        for r in hot.regions
        for producer, n in r.waits_for.items()
        if producer != r.name and n >= 0.005 * hot.samples
    ]
    for producer, consumer, n in sorted(flows, key=lambda f: -f[2])[:5]:
        yield indented(Text(f"{producer} -> {consumer}: {100 * n / hot.samples:.1f} % of the samples wait across"))


def _instructions(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    del glyphs, sources
    totals: dict[tuple[str, int] | None, list[Row]] = {}
    for row in hot.rows:
        if state is None or row.state is state:
            key = None if row.place is None else (row.place.function, row.place.instruction.offset)
            totals.setdefault(key, []).append(row)
    ranked = sorted(totals.values(), key=lambda rows: (-sum(r.lost for r in rows), -sum(r.samples for r in rows)))

    def name(rows: list[Row]) -> str:
        return "outside kernel" if rows[0].place is None else _short(rows[0].place)

    yield from _ranking(hot, "instruction that waits", ranked, name, limit)


def _lines(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    del glyphs
    groups: dict[tuple[str, int] | None, list[Row]] = {key: [] for key in by_line(hot)}
    for row in hot.rows:
        if state is not None and row.state is not state:
            continue
        place = row.place
        key = (place.file, place.line) if place is not None and place.file and place.line is not None else None
        groups[key].append(row)
    ranked = sorted(
        (rows for rows in groups.values() if rows),
        key=lambda rows: (-sum(r.lost for r in rows), -sum(r.samples for r in rows)),
    )

    def name(rows: list[Row]) -> str:
        place = rows[0].place
        if place is None or place.file is None or place.line is None:
            return "no line information"
        return f"{name_of(place)} {source_line(place, sources)}".rstrip()

    yield from _ranking(hot, "source line", ranked, name, limit)


def _states(
    hot: Hot, state: WarpState | None, limit: int, glyphs: bars.Glyphs, sources: Sources
) -> Iterator[RenderableType]:
    del glyphs, sources, limit
    yield heading("Samples by state, and how their producers were found")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("state", "samples", "share", "unique", "joint", "methods"):
        table.add_column(column, justify="left" if column in ("state", "methods") else "right")
    for c in hot.coverage:
        if state is not None and c.state is not state:
            continue
        methods = ", ".join(f"{m.value} {100 * n / c.samples:.1f} %" for m, n in c.by_method.items())
        share = 100 * c.samples / hot.samples
        table.add_row(
            c.state.value,
            f"{c.samples:,}",
            f"{share:.1f} %",
            *(f"{100 * n / c.samples:.1f} %" for n in (c.unique, c.joint)),
            methods,
        )
    yield table


def _ranking(
    hot: Hot, title: str, ranked: list[list[Row]], name: Callable[[list[Row]], str], limit: int
) -> Iterator[RenderableType]:
    yield heading(f"By {title} ({_unit(hot)}, share of samples, largest stall)")
    widest = max((len(r.state.value) for rows in ranked for r in rows), default=0)
    for rows in ranked[:limit]:
        samples, lost = sum(r.samples for r in rows), sum(r.lost for r in rows)
        by_state: dict[WarpState, int] = {}
        for r in rows:
            by_state[r.state] = by_state.get(r.state, 0) + r.samples
        top = max(by_state, key=lambda s: (s.is_stall, by_state[s]))
        share = f"{100 * samples / hot.samples:.1f} %"
        yield _one_line(Text(f"{_cost(slots(hot, lost)):>10} {share:>7} {top.value:{widest}} {name(rows)}"))


def listing(
    hot: Hot,
    sources: Sources,
    around: tuple[str, int] | None = None,
    lines: int = AROUND,
    live: Mapping[tuple[str, int], int] | None = None,
) -> Iterator[RenderableType]:
    """Yield annotated SASS: of everything, or ``lines`` instructions around a (function, offset)."""
    cost: dict[tuple[str, int], list[int]] = {}
    top: dict[tuple[str, int], dict[WarpState, int]] = {}
    for row in hot.rows:
        if row.place is not None:
            key = (row.place.function, row.place.instruction.offset)
            cost.setdefault(key, [0, 0])
            cost[key][0] += row.samples
            cost[key][1] += row.lost
            top.setdefault(key, {})[row.state] = row.samples
    live_head = "" if live is None else "live "
    yield _code_line(f"   offset    samp.   lost  executed {live_head}ctl       instruction", "bold")
    last: tuple[str | None, int | None] = (None, None)
    for function in hot.code.functions.values():
        chosen = list(function.instructions)
        if around is not None:
            if function.name != around[0]:
                continue
            center = function.by_offset[around[1]].index
            chosen = chosen[max(0, center - lines) : center + lines + 1]
        for i in chosen:
            key = (function.name, i.offset)
            place = Place(function.name, i, hot.region_of.get(key, UNMARKED))
            if (place.file, place.line) != last and place.file is not None:
                last = (place.file, place.line)
                yield _code_line(f"  {name_of(place)} [{place.region}] {source_line(place, sources)}", "green")
            samples, lost = cost.get(key, [0, 0])
            states = top.get(key, {})
            stall = max((s for s in states if s.is_stall), key=lambda s: states[s], default=None)
            note = f"  {stall.value}" if stall is not None and samples >= 0.01 * hot.samples else ""
            mark = ">" if around is not None and i.offset == around[1] else " "
            alive = "" if live is None else f"{live.get(key, 0):4d} "
            head = (
                f"{mark} {i.offset:7x} {samples or '':8} {lost or '':6} {units.count(hot.executed.get(key)):>9} {alive}"
            )
            yield _one_line(Text.assemble(f"{head}{_control(i):9} {i.text}", (note, "bold red")))


def _code_line(text: str, style: str) -> RenderableType:
    return _one_line(Text(text, style))


def _one_line(text: Text) -> RenderableType:
    """A line that is cut, not wrapped; console.print drops a bare Text's own wrapping."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return Padding(text, 0)


def _control(i: Instruction) -> str:
    """Scheduling column: stall count, scoreboards set (w write, r read) and waited on (?)."""
    c = i.control
    if c is None:
        return ""
    sets = "".join(
        (
            f"w{c.write_barrier}" if c.write_barrier is not None else "",
            f"r{c.read_barrier}" if c.read_barrier is not None else "",
        )
    )
    waits = "".join(map(str, c.waits))
    return f"{c.stall:2} {sets}{'?' + waits if waits else ''}"


def _unit(hot: Hot) -> str:
    known = hot.account.no_eligible_pct is not None and hot.lost
    return "lost issue slots of 100" if known else "lost issue slots not collected"


def _cost(x: Sampled | None) -> str:
    return units.DASH if x is None else f"{x.value:.1f} ± {x.standard_error:.1f}"


def _short(place: Place) -> str:
    text = place.instruction.text
    return f"{text if len(text) <= 44 else text[:43] + '…'} ({name_of(place)})"


def _long(place: Place, sources: Sources) -> str:
    source = source_line(place, sources)
    region = f" [{place.region}]" if place.region != UNMARKED else ""
    return f"{_short(place)}{region}" + (f"\n   {source}" if source else "")
