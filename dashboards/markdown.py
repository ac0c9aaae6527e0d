"""Results as Markdown for an issue, a pull request or a campaign log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dashboards import units
from profiler.books import Account, Sampled
from profiler.by_region import RegionExplanation
from profiler.compare import Comparison
from profiler.model import Conditions

REGION_ROWS = 10


def report_markdown(path: str, conditions: Conditions, accounts: Sequence[Account]) -> str:
    """Return a summary table of all launches, then the books of each."""
    out = [f"## {path}", "", _conditions(conditions), ""]
    out += table(
        ("#", "kernel", "time", "bound", "No Eligible", "cy/inst", "top state"),
        (
            (
                a.launch.index,
                f"`{a.launch.kernel}`",
                units.time(a.duration_ns),
                a.bound.kind,
                units.percent(a.no_eligible_pct),
                units.number(a.warp_cycles_per_issued_instruction),
                a.top_state.value if a.top_state is not None else units.DASH,
            )
            for a in accounts
        ),
    )
    for a in accounts:
        out += _launch(a)
    return "\n".join(out) + "\n"


def _launch(a: Account) -> list[str]:
    out = ["", f"### #{a.launch.index} `{a.launch.kernel}`", "", a.bound.sentence, ""]
    if a.states:
        total = a.warp_cycles_per_issued_instruction or sum(a.states.values())
        lost = a.issue_slots.lost if a.issue_slots is not None else {}
        rows: list[tuple[object, ...]] = []
        for state, value in sorted(a.states.items(), key=lambda item: -item[1]):
            slot = lost.get(state)
            slots = units.DASH if slot is None else f"{slot.value:.1f} ± {slot.standard_error:.1f}"
            rows.append((state.value, f"{value:.3f}", f"{100 * value / total:.1f} %", slots))
        rows.append(("residual", units.number(a.residual_cycles, 3), units.percent(a.residual_pct), ""))
        out += table(("state", "cy/inst (counted)", "share", "lost issue slots of 100 (sampled)"), rows)
    elif a.sampled_states:
        out += table(
            ("state", "cy/inst (sampled share of the counted total)", "standard error"),
            (
                (state.value, f"{x.value:.3f}", f"{x.standard_error:.3f}")
                for state, x in sorted(a.sampled_states.items(), key=lambda item: -item[1].value)
            ),
        )
    out += [f"- **{f.severity}** {f.text} `{f.rule}`" for f in a.findings]
    sections = sorted({m.section for m in a.not_collected})
    if sections:
        out += ["", "Not collected: " + ", ".join(f"`--section {s}`" for s in sections)]
    return out


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the explanation of each pair: sentence, factors, terms."""
    out: list[str] = []
    for c in comparisons:
        out += [f"## `{c.before.launch.kernel}` -> `{c.after.launch.kernel}`", "", c.sentence, ""]
        unit = "us/GMAC" if c.per_work else "us"
        if c.factors:
            rows: list[tuple[object, ...]] = [("before", "", _us(c.before_ns), "")]
            for t in c.factors:
                rows.append((f"**{t.factor}**", "", _us(t.delta_ns, True), units.percent(t.share_pct)))
                leaves = [x for x in c.terms if x.factor == t.factor and x.detail and abs(x.share_pct or 0.0) >= 0.5]
                rows += [
                    ("", x.detail, _us(x.delta_ns, True), units.percent(x.share_pct))
                    for x in sorted(leaves, key=lambda x: -abs(x.delta_ns))
                ]
            rows.append(("remainder", "", _us(c.remainder_ns, True), ""))
            rows.append(("after", "", _us(c.after_ns), ""))
            out += table(("factor", "detail", unit, "share of the change"), rows)
        if c.by_region is not None:
            out += _by_region(c.by_region, unit)
        out += [f"- **refused** {r.text} `{r.rule}`" for r in c.refusals]
        out += [f"- **caution** {i.text} `{i.rule}`" for i in c.cautions]
        out += [f"- **not collected** {m.quantity} (`--section {m.section}`)" for m in c.not_collected]
        out.append("")
    return "\n".join(out)


def _by_region(x: RegionExplanation, unit: str) -> list[str]:
    """Return the instructions by region, the stalls by what is waited for, and the code that changed most."""
    out: list[str] = []
    if x.instructions:
        rows: list[tuple[object, ...]] = [
            (t.region, units.count(t.before), units.count(t.after), _us(t.delta_ns, True), units.percent(t.share_pct))
            for t in x.instructions
        ]
        out += ["", *table(("region", "executed before", "after", unit, "share of the change"), rows)]
    if x.producers:
        rows = [
            (t.state.value, t.region, t.mostly, _estimate(t.before), _estimate(t.after), _us(t.effect.value, True))
            for t in [t for t in x.producers if t.state.is_stall][:REGION_ROWS]
        ]
        out += ["", *table(("state", "waits for", "mostly", "cy/inst before (sampled)", "after", unit), rows)]
    if x.alignment.kinds:
        rows = [
            (
                k.region,
                f"`{k.sass}`",
                f"{k.instructions_before} -> {k.instructions_after}",
                f"{units.count(k.executed_before)} -> {units.count(k.executed_after)}",
            )
            for k in x.alignment.kinds[:REGION_ROWS]
        ]
        out += ["", *table(("region", "code that changed most", "instructions", "executed"), rows)]
    out += ["", *(f"- **not collected** {a.quantity}: {a.reason}" for a in x.absent)]
    return out + [f"- {p}" for p in x.problems]


def _estimate(x: Sampled) -> str:
    return f"{x.value:.3f} ± {x.standard_error:.3f}"


def _us(ns: float | None, signed: bool = False) -> str:
    text = units.microseconds(ns, signed)
    return (
        text.removesuffix(" us").replace("-0.0", "0.0") if text in ("-0.0 us", "+0.0 us") else text.removesuffix(" us")
    )


def _conditions(c: Conditions) -> str:
    parts = [
        f"ncu {c.ncu_version or 'unknown'}",
        f"driver {c.driver_version or 'unknown'}",
        f"clock control {c.clock_control}",
        f"cache control {c.cache_control}",
        f"{c.replay_mode} replay",
    ]
    return ", ".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""

    def line(cells: Sequence[object]) -> str:
        return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *(line(r) for r in rows)]
