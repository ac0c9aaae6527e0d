"""Accounts -> what the terminal shows for a report: a summary of many launches, the books of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dashboards import units
from dashboards.terminal import bars
from dashboards.terminal.layout import columns, heading, indented
from profiler.books import ENOUGH_SAMPLES, Account
from profiler.model import Conditions

if TYPE_CHECKING:
    from profiler.sidecar import Sidecar

BAR = 28
# States below this share of a warp's time are summed in one line.
SMALL_STATE = 0.005


def draw_report(
    console: Console,
    path: str,
    conditions: Conditions,
    accounts: Sequence[Account],
    details: Sequence[Account],
    capture: Sidecar | None = None,
) -> None:
    """Print the summary table when there are several launches, then the books of ``details``."""
    if capture is not None:
        from dashboards.terminal.capture import capture_lines

        for part in capture_lines(capture):
            console.print(part)
    console.print(Text.assemble((path, "bold"), f"  {conditions_line(conditions)}"), soft_wrap=False)
    if len(accounts) > 1:
        console.print(summary_table(accounts))
    for a in details:
        for part in launch_parts(a, bars.glyphs_for(console)):
            console.print(part)
    hidden = len(accounts) - len(details)
    if hidden and details:
        console.print(
            Text(f"Books of the longest launch shown; --launch N shows another of the {len(accounts)}.", "dim")
        )


def conditions_line(c: Conditions) -> str:
    """Return how a report was captured, in a line."""
    parts = [f"ncu {c.ncu_version}" if c.ncu_version else "ncu version unknown"]
    if c.driver_version:
        parts.append(f"driver {c.driver_version}")
    parts.append(f"clock control {c.clock_control}, cache control {c.cache_control}, {c.replay_mode} replay")
    return ", ".join(parts)


def summary_table(accounts: Sequence[Account]) -> Table:
    """Return one row a launch: share of the captured time, what bounds it, No Eligible, top state."""
    total = sum(a.duration_ns or 0.0 for a in accounts)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("kernel", overflow="ellipsis", no_wrap=True, max_width=26)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("no elig.", justify="right", no_wrap=True)
    table.add_column("top state", no_wrap=True)
    for a in accounts:
        share = 100.0 * a.duration_ns / total if a.duration_ns is not None and total else None
        table.add_row(
            str(a.launch.index),
            a.launch.kernel,
            units.time(a.duration_ns),
            units.percent(share),
            a.bound.kind,
            units.percent(a.no_eligible_pct),
            a.top_state.value if a.top_state is not None else units.DASH,
        )
    return table


def launch_parts(a: Account, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    """Yield the books of one launch, the sentence first."""
    yield Text()
    yield _title(a)
    yield Text(a.bound.sentence, "bold")
    if a.issue_slots is not None:
        yield from _slots(a, glyphs)
    if a.states:
        yield from _states(a, glyphs)
    elif a.sampled_states:
        yield from _sampled_states(a, glyphs)
    yield from _identity(a)
    yield Text()
    yield _units(a)
    if a.opcodes:
        yield from _instructions(a)
    yield from _findings(a)


def _title(a: Account) -> Text:
    launch = a.launch
    text = Text.assemble((f"#{launch.index} {launch.kernel}", "bold cyan"))
    if launch.grid is not None:
        text.append(f"  grid {units.dims(launch.grid)}, block {units.dims(launch.block)}")
    elif launch.workload != "kernel":
        text.append(f"  ({launch.workload})")
    text.append(f"  {launch.device.name or 'unknown device'} (cc {launch.device.cc or '?'})")
    text.append(f"  {units.time(a.duration_ns)}" if a.duration_ns is not None else "  duration not collected")
    return text


def _slots(a: Account, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    slots = a.issue_slots
    assert slots is not None
    n = a.samples.total_not_issued if a.samples is not None else 0
    ranked = list(slots.lost.items()) if n >= ENOUGH_SAMPLES else []
    split = "split not collected" if a.samples is None else f"{n:,} samples are too few to split it"
    basis = f"No Eligible counted, split by {n:,} samples" if ranked else f"counted; {split}"
    yield heading(f"Of 100 issue slots ({basis})")
    yield Padding(bars.stacked([slots.issued_pct, *(x.value for _, x in ranked[:3])], 76, glyphs), (0, 0, 0, 2))
    marks = (*glyphs.parts, *(glyphs.rest * len(ranked)))
    table = _table()
    table.add_row(glyphs.full, "issued", f"{slots.issued_pct:.1f}", "", "")
    for mark, (state, value) in zip(marks, ranked[:5], strict=False):
        table.add_row(mark, state.value, f"{value.value:.1f}", f"± {value.standard_error:.1f}", state.meaning)
    if len(ranked) > 5:
        rest = sum(x.value for _, x in ranked[5:])
        table.add_row(glyphs.rest, f"{len(ranked) - 5} other states", f"{rest:.1f}", "", "")
    if not ranked:
        table.add_row(glyphs.rest, "empty (No Eligible)", f"{slots.lost_pct:.1f}", "", "")
    yield table


def _states(a: Account, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    latency = a.warp_cycles_per_issued_instruction
    total = latency if latency else sum(a.states.values())
    yield heading(f"Warp Cycles Per Issued Instruction {units.number(latency)}, by state (cy/inst)")
    ranked = sorted(a.states.items(), key=lambda item: -item[1])
    top = ranked[0][1] if ranked else 1.0
    table = _table()
    small = 0.0
    for state, value in ranked:
        if value < SMALL_STATE * total:
            small += value
            continue
        table.add_row(
            "",
            state.value,
            f"{value:.3f}",
            f"{100 * value / total:.1f} %",
            bars.plain(value, top, BAR, glyphs),
        )
    table.add_row("", "smaller states", f"{small:.3f}", f"{100 * small / total:.1f} %", "")
    if a.residual_cycles is not None:
        note = "counters of different passes" if abs(a.residual_pct or 0.0) > 1.0 else ""
        table.add_row("", "residual", f"{a.residual_cycles:.3f}", units.percent(a.residual_pct), note)
    yield table


def _sampled_states(a: Account, glyphs: bars.Glyphs) -> Iterator[RenderableType]:
    latency, samples = a.warp_cycles_per_issued_instruction, a.samples
    assert latency is not None
    assert samples is not None
    yield heading(f"Warp Cycles Per Issued Instruction {latency:.2f} (counted), split by {samples.total:,} samples")
    ranked = sorted(a.sampled_states.items(), key=lambda item: -item[1].value)
    big = [item for item in ranked if item[1].value >= SMALL_STATE * latency]
    table = columns(((1, False), (20, False), (7, True), (8, True), (8, True), (BAR, False)))
    for state, x in big:
        bar = bars.plain(x.value, big[0][1].value, BAR, glyphs)
        error = f"± {x.standard_error:.3f}"
        table.add_row("", state.value, f"{x.value:.3f}", error, f"{100 * x.value / latency:.1f} %", bar)
    small = sum(x.value for _, x in ranked) - sum(x.value for _, x in big)
    table.add_row("", "smaller states", f"{small:.3f}", "", f"{100 * small / latency:.1f} %", "")
    yield table


def _identity(a: Account) -> Iterator[RenderableType]:
    if a.duration_ns is None or a.issued_per_scheduler is None:
        return
    yield heading("Time = instructions * cy/inst / active warps / active share / clock")
    share = None if a.active_share is None else 100.0 * a.active_share
    parts = [
        units.count(a.issued_per_scheduler),
        units.number(a.warp_cycles_per_issued_instruction, 3),
        units.number(a.active_warps, 3),
        units.percent(share),
        f"{a.clock_hz / 1e9:.3f} GHz" if a.clock_hz is not None else units.DASH,
    ]
    text = f"  {units.time(a.duration_ns)} = {parts[0]} * {parts[1]} / {parts[2]} / {parts[3]} / {parts[4]}"
    if a.identity_residual_pct is not None:
        text += f", closes to {abs(a.identity_residual_pct):.2f} %"
        if {"active_cycles", "elapsed_cycles"} <= a.derived.keys():
            # A = I / r and E = T * f leave L * r / W alone to check.
            text += " (A, E derived)"
    yield Text(text)


def _units(a: Account) -> RenderableType:
    t, o = a.throughputs_pct, a.occupancy
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=False)
    names = (("sm", "SM"), ("l1tex", "L1/TEX"), ("l2", "L2"), ("dram", "DRAM"))
    busy = ", ".join(f"{label} {units.percent(t.get(key), 0)}" for key, label in names)
    limits = f", limited by {' and '.join(o.limiters)}" if o.limiters and (o.theoretical_pct or 100) < 100 else ""
    table.add_row("  throughput", busy)
    table.add_row("  occupancy", f"{units.percent(o.achieved_pct)} of {units.percent(o.theoretical_pct)}{limits}")
    if o.registers_per_thread is not None:
        shared = "" if o.shared_bytes_per_block is None else f", {o.shared_bytes_per_block:,} B shared a block"
        waves = "" if o.waves_per_sm is None else f", {o.waves_per_sm:.2f} waves"
        table.add_row("  launch", f"{o.registers_per_thread} registers a thread{shared}{waves}")
    return table


def _instructions(a: Account) -> Iterator[RenderableType]:
    executed = a.executed_instructions or sum(a.opcodes.values())
    yield heading(f"Executed warp instructions {units.count(executed)} (issued {units.count(a.issued_instructions)})")
    ranked = list(a.opcode_classes.items())
    shown = [f"{cls.value} {100 * n / executed:.1f} %" for cls, n in ranked if n >= 0.01 * executed]
    yield indented(Text(", ".join(shown)))
    rows = [
        f"{m.access.name} {units.count(m.instructions)}"
        for m in sorted(a.memory, key=lambda m: -m.instructions)
        if m.instructions
    ]
    if rows:
        yield Padding(Text("memory: " + ", ".join(rows[:10])), (0, 0, 0, 2))
    if a.tensor is not None and a.tensor.instructions:
        macs = f"{a.tensor.macs / 1e9:.2f} GMAC" if a.tensor.macs is not None else "MACs not in the opcode"
        yield Padding(Text(f"tensor cores: {units.count(a.tensor.instructions)} instructions, {macs}"), (0, 0, 0, 2))
    if (w := a.per_work) is not None:
        waste = "" if w.padding_waste_pct is None else f", padding {w.padding_waste_pct:.1f} %"
        traffic = "" if w.bytes_per_mac is None else f", {w.bytes_per_mac:.4f} DRAM byte/MAC"
        yield Padding(
            Text(
                f"per GMAC of {w.work.gmac:.2f}: {units.count(w.instructions)} instructions, "
                f"{units.count(w.cycles)} cycles, {units.number(w.us)} us{waste}{traffic}"
            ),
            (0, 0, 0, 2),
        )


def _findings(a: Account) -> Iterator[RenderableType]:
    if a.findings:
        yield heading("Findings")
    for f in a.findings:
        yield Padding(Text.assemble((f"{f.severity} ", "bold"), f"{f.text} ", (f"[{f.rule}]", "dim")), (0, 0, 0, 2))
    if a.not_collected:
        sections: dict[str, list[str]] = {}
        for m in a.not_collected:
            sections.setdefault(m.section, []).append(m.quantity)
        yield heading("Not collected")
        for section, quantities in sections.items():
            yield Padding(Text.assemble((f"--section {section}: ", "bold"), ", ".join(quantities)), (0, 0, 0, 2))


def _table() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(width=20, no_wrap=True)
    table.add_column(justify="right", width=7, no_wrap=True)
    table.add_column(justify="right", width=8, no_wrap=True)
    table.add_column(overflow="fold")
    return table
