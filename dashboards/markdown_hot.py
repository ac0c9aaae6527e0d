"""Attribution as Markdown: causes, regions, coverage."""

from __future__ import annotations

from dashboards import units
from dashboards.markdown import table
from profiler.blame import Hot, Place
from profiler.books import Sampled
from profiler.export_hot import cycles_per_executed, slots

CAUSES = 15


def hot_markdown(hot: Hot) -> str:
    """Return the costliest causes, the regions, and how states were attributed."""
    launch = hot.account.launch
    out = [f"## #{launch.index} `{launch.kernel}`", "", f"{hot.samples:,} samples, {hot.lost:,} in empty slots", ""]
    stalls = [c for c in hot.causes if c.state.is_stall]
    rows = []
    for c in stalls[:CAUSES]:
        waiter = _place(c.waiters[0][0]) if c.waiters else units.DASH
        producer = " and ".join(_place(p) for p in c.producers) or c.method.value
        share = Sampled.share(c.samples, hot.samples)
        rows.append(
            (_cost(slots(hot, c.lost)), f"{share.value:.1f} %", c.state.value, producer, waiter, c.method.value)
        )
    out += table(("lost slots of 100", "samples", "state", "producer", "waited for at", "method"), rows)
    out += ["", f"Regions (from {hot.region_source})", ""]
    out += table(
        ("region", "samples", "lost slots of 100", "executed", "cy/inst", "waits for"),
        (
            (
                r.name,
                _share(r.samples, hot),
                _cost(slots(hot, r.lost)),
                units.count(r.executed),
                _cost(cycles_per_executed(hot, r.samples, r.executed)),
                ", ".join(f"{name} {_share(n, hot)}" for name, n in list(r.waits_for.items())[:3]),
            )
            for r in hot.regions
        ),
    )
    out += ["", *table(("state", "samples", "unique producer", "joint set", "methods"), _coverage(hot)), ""]
    out += [f"- {problem}" for problem in hot.problems]
    return "\n".join(out) + "\n"


def _coverage(hot: Hot) -> list[tuple[object, ...]]:
    return [
        (
            c.state.value,
            f"{c.samples:,}",
            f"{100 * c.unique / c.samples:.1f} %",
            f"{100 * c.joint / c.samples:.1f} %",
            ", ".join(f"{m.value} {100 * n / c.samples:.1f} %" for m, n in c.by_method.items()),
        )
        for c in hot.coverage
    ]


def _share(samples: float, hot: Hot) -> str:
    return f"{100 * samples / hot.samples:.1f} %" if hot.samples else units.DASH


def _place(place: Place) -> str:
    at = f" ({place.source})" if place.source else ""
    return f"`{place.instruction.text}`{at}"


def _cost(x: Sampled | None) -> str:
    return units.DASH if x is None else f"{x.value:.1f} ± {x.standard_error:.1f}"
