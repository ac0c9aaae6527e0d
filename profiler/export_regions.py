"""An explanation by region -> plain data: the ``by_region`` of ``cyinst.compare/1``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from profiler.blame import Place
from profiler.books import Sampled
from profiler.by_region import Alignment, Kind, Pair, ProducerTerm, RegionExplanation, RegionTerm

# Instructions (and groups of them) listed; the counts by region cover all of them.
LISTED = 40


def by_region_document(x: RegionExplanation) -> dict[str, Any]:
    """Return the explanation; a split that cannot be made is null, and named in ``absent``."""
    return {
        "region_sources": {"before": x.region_sources[0], "after": x.region_sources[1]},
        "instructions": [_region(t) for t in x.instructions] or None,
        "producers": [_producer(t) for t in x.producers] or None,
        "producer_kinds": [_producer(t) for t in x.producer_kinds] or None,
        "alignment": _alignment(x.alignment),
        "changed_kinds": [_kind(k) for k in x.alignment.kinds[:LISTED]],
        "changed_instructions": [_pair(p) for p in x.alignment.changed(LISTED)],
        "absent": [{"quantity": a.quantity, "reason": a.reason} for a in x.absent],
        "problems": list(x.problems),
    }


def _region(t: RegionTerm) -> dict[str, Any]:
    return {
        "region": t.region,
        "before": t.before,
        "after": t.after,
        "delta_ns": t.delta_ns,
        "share_pct": t.share_pct,
    }


def _producer(t: ProducerTerm) -> dict[str, Any]:
    return {
        "state": t.state.value,
        "region": t.region,
        "kind": t.kind or None,
        "before": _sampled(t.before),
        "after": _sampled(t.after),
        "change": _sampled(t.change),
        "delta_ns": _sampled(t.effect),
        "share_pct": t.share_pct,
    }


def _alignment(a: Alignment) -> list[dict[str, Any]]:
    counts: dict[str, dict[str, int]] = defaultdict(
        lambda: {"matched": 0, "moved": 0, "only_before": 0, "only_after": 0}
    )
    for p in a.pairs:
        found = counts[p.region]
        found["only_before"] += p.after is None
        found["only_after"] += p.before is None
        found["matched"] += p.before is not None and p.after is not None
        found["moved"] += p.moved
    return [{"region": region} | found for region, found in counts.items()]


def _kind(k: Kind) -> dict[str, Any]:
    return {name: getattr(k, name) for name in Kind.__dataclass_fields__}


def _pair(p: Pair) -> dict[str, Any]:
    return {
        "region": p.region,
        "before": _place(p.before, p.executed_before),
        "after": _place(p.after, p.executed_after),
        "moved": p.moved,
    }


def _place(place: Place | None, executed: int | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "function": place.function,
        "offset": place.instruction.offset,
        "sass": place.instruction.text,
        "file": place.file,
        "line": place.line,
        "executed": executed,
    }


def _sampled(x: Sampled) -> dict[str, float]:
    return {"value": x.value, "standard_error": x.standard_error}
