"""Attribution -> plain data: ``cyinst.hot/1``, rows for CSV, and stacks for flame-graph viewers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from profiler.blame import OUTSIDE, Cause, Hot, Place, Producer, RegionCost, Row
from profiler.books import Sampled
from profiler.levers import Lever, levers_of

HOT_SCHEMA = "cyinst.hot/1"


def hot_document(hot: Hot) -> dict[str, Any]:
    """Return the ``cyinst.hot/1`` document of a launch."""
    # The table takes its numbers from this module and must not wait for all that comparisons need.
    from profiler.export import launch_identity

    return {
        "schema": HOT_SCHEMA,
        "launch": launch_identity(hot.account.launch) | {"duration_ns": hot.account.duration_ns},
        "cubin": hot.code.digest or None,
        "sm": hot.code.sm or None,
        "samples": hot.samples,
        "lost_slot_samples": hot.lost,
        "no_eligible_pct": hot.account.no_eligible_pct,
        "region_source": hot.region_source,
        "rows": [_row(hot, r) for r in hot.rows],
        "causes": [_cause(hot, c) for c in hot.causes],
        "culprits": [_culprit(lever) for lever in levers_of(hot)],
        "regions": [_region(hot, r) for r in hot.regions],
        "coverage": [
            {
                "state": c.state.value,
                "samples": c.samples,
                "unique": c.unique,
                "joint": c.joint,
                "methods": {m.value: n for m, n in c.by_method.items()},
            }
            for c in hot.coverage
        ],
        "problems": list(hot.problems),
    }


def hot_rows(hot: Hot) -> list[dict[str, Any]]:
    """Return one flat row for each (instruction, state, producer); ``weight`` splits the samples."""
    out = []
    for row in hot.rows:
        head = _place(row.place) | {
            "state": row.state.value,
            "samples": row.samples,
            "lost_slot_samples": row.lost,
            "executed": row.executed,
        }
        for p in row.producers or (None,):
            tail = {f"producer_{k}": x for k, x in _place(None if p is None else p.place).items()}
            method = row.method if p is None else p.method
            weight = 1.0 if p is None else p.weight
            out.append(head | {"method": method.value, "weight": weight} | tail)
    return out


def stacks(hot: Hot) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield (kernel, region, line, instruction, state) and samples, for every row."""
    kernel = hot.account.launch.kernel
    for row in hot.rows:
        if row.place is None:
            yield (kernel, OUTSIDE, row.state.value), row.samples
            continue
        place = row.place
        line = place.source or "no line"
        text = f"{place.instruction.offset:04x} {place.instruction.text}"
        yield (kernel, place.region, line, text, row.state.value), row.samples


def collapsed(hot: Hot) -> str:
    """Return collapsed stacks, ``a;b;c count`` a line, as flamegraph.pl and its kin read them."""
    lines = (f"{';'.join(part.replace(';', ',') for part in stack)} {count}" for stack, count in stacks(hot))
    return "\n".join(sorted(lines)) + "\n"


def speedscope(hot: Hot) -> dict[str, Any]:
    """Return a speedscope file (https://www.speedscope.app/file-format-schema.json): a sampled profile in samples."""
    frames: dict[str, int] = {}
    samples: list[list[int]] = []
    weights: list[int] = []
    for stack, count in stacks(hot):
        samples.append([frames.setdefault(name, len(frames)) for name in stack])
        weights.append(count)
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "cyinst",
        "name": hot.account.launch.kernel,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": "warp samples",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }


def slots(hot: Hot, lost: float) -> Sampled | None:
    """Return lost samples as issue slots of 100, with a standard error; None when that cannot be told."""
    if hot.account.no_eligible_pct is None or not hot.lost:
        return None
    return Sampled.share(lost, hot.lost, hot.account.no_eligible_pct)


def cycles_per_executed(hot: Hot, samples: float, executed: int | None) -> Sampled | None:
    """Return the warp cycles that samples stand for, per executed warp instruction, with a standard error.

    All samples together are the warp cycles of the launch: L * issued instructions.
    """
    latency, issued = hot.account.warp_cycles_per_issued_instruction, hot.account.issued_instructions
    if not executed or latency is None or issued is None or not hot.samples:
        return None
    return Sampled.share(samples, hot.samples, latency * issued / executed)


def _place(place: Place | None) -> dict[str, Any]:
    if place is None:
        return {"function": None, "offset": None, "sass": None, "file": None, "line": None, "region": OUTSIDE}
    return {
        "function": place.function,
        "offset": place.instruction.offset,
        "sass": place.instruction.text,
        "file": place.file,
        "line": place.line,
        "region": place.region,
    }


def _row(hot: Hot, row: Row) -> dict[str, Any]:
    return _place(row.place) | {
        "state": row.state.value,
        "samples": row.samples,
        "samples_share": _sampled(Sampled.share(row.samples, hot.samples)),
        "lost_slot_samples": row.lost,
        "lost_slots": _sampled(slots(hot, row.lost)),
        "executed": row.executed,
        "warp_cycles_per_executed": _sampled(cycles_per_executed(hot, row.samples, row.executed)),
        "method": row.method.value,
        "producers": [_producer(p) for p in row.producers],
    }


def _producer(p: Producer) -> dict[str, Any]:
    return _place(p.place) | {
        "weight": p.weight,
        "joint": p.joint,
        "method": p.method.value,
        "loop_carried": p.loop_carried,
        "chain": [_place(c) for c in p.chain],
        "note": p.note,
    }


def _cause(hot: Hot, c: Cause) -> dict[str, Any]:
    return {
        "producers": [_place(p) for p in c.producers],
        "state": c.state.value,
        "method": c.method.value,
        "samples": c.samples,
        "samples_share": _sampled(Sampled.share(c.samples, hot.samples)),
        "lost_slot_samples": c.lost,
        "lost_slots": _sampled(slots(hot, c.lost)),
        "loop_carried": c.loop_carried,
        "chain": [_place(p) for p in c.chain],
        "note": c.note,
        "waiters": [_place(p) | {"samples": n} for p, n in c.waiters],
    }


def _culprit(lever: Lever) -> dict[str, Any]:
    return {
        "kind": lever.kind.value,
        "places": [_place(p) for p in lever.places],
        "state": lever.state.value if lever.state is not None else None,
        "warp_time_pct": {s.value: x for s, x in lever.states.items()},
        "ceiling_pct": _sampled(lever.ceiling),
        "expected_pct": lever.expected,
        "waiting_ceiling_pct": _sampled(lever.waiting),
        "waiting_expected_pct": lever.waiting_expected,
        "bound_by": lever.floor,
    }


def _region(hot: Hot, r: RegionCost) -> dict[str, Any]:
    work = hot.account.per_work
    gmac = None if work is None else work.work.gmac
    return {
        "name": r.name,
        "samples": r.samples,
        "samples_share": _sampled(Sampled.share(r.samples, hot.samples)) if hot.samples else None,
        "lost_slot_samples": r.lost,
        "lost_slots": _sampled(slots(hot, r.lost)),
        "executed": r.executed,
        "executed_per_gmac": None if gmac is None or r.executed is None else r.executed / gmac,
        "warp_cycles_per_executed": _sampled(cycles_per_executed(hot, r.samples, r.executed)),
        "states": {s.value: n for s, n in r.states.items()},
        "waits_for": dict(r.waits_for),
    }


def _sampled(x: Sampled | None) -> dict[str, float] | None:
    return None if x is None else {"value": x.value, "standard_error": x.standard_error}


def by_line(hot: Hot) -> dict[tuple[str, int] | None, tuple[int, int]]:
    """Return {(file, line): (samples, lost)}; None stands for code without line information and outside samples."""
    totals: dict[tuple[str, int] | None, list[int]] = defaultdict(lambda: [0, 0])
    for row in hot.rows:
        place = row.place
        key = (place.file, place.line) if place is not None and place.file and place.line is not None else None
        totals[key][0] += row.samples
        totals[key][1] += row.lost
    return {k: (a, b) for k, (a, b) in totals.items()}
