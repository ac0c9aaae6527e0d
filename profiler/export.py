"""Results -> plain data: the JSON contracts, flat rows for CSV and Parquet, and files written whole or not at all.

The JSON Schemas lie in profiler/schemas; values that were not collected are null.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.books import Account, Evidence, Finding, IssueSlots, NotCollected, Sampled, Samples
from profiler.compare import Comparison, Term
from profiler.errors import MissingToolError, UsageError
from profiler.export_regions import by_region_document
from profiler.model import Conditions, LaunchProfile, Report, Setting
from profiler.vocabulary import WarpState

if TYPE_CHECKING:
    import pandas as pd

    from profiler.sidecar import Sidecar

REPORT_SCHEMA = "cyinst.report/1"
COMPARE_SCHEMA = "cyinst.compare/1"
COMPARE_SET_SCHEMA = "cyinst.compare-set/1"


def report_document(report: Report, accounts: Sequence[Account], capture: Sidecar | None = None) -> dict[str, Any]:
    """Return the ``cyinst.report/1`` document of a report's (selected) launches, with its sidecar."""
    return {
        "schema": REPORT_SCHEMA,
        "path": report.path,
        "conditions": conditions_document(report.conditions),
        "launches": [launch_document(a) for a in accounts],
        "capture": None if capture is None else capture.to_dict(),
        "problems": list(report.problems),
    }


def conditions_document(conditions: Conditions) -> dict[str, Any]:
    """Return the capture conditions; a setting is {"value", "source"}."""
    document: dict[str, Any] = {}
    for entry in fields(conditions):
        value = getattr(conditions, entry.name)
        document[entry.name] = {"value": value.value, "source": value.source} if isinstance(value, Setting) else value
    return document


def launch_identity(launch: LaunchProfile) -> dict[str, Any]:
    """Return what names a launch: index, kernel, symbol, device, shape, NVTX path."""
    return {
        "index": launch.index,
        "kernel": launch.kernel,
        "demangled": launch.demangled,
        "mangled": launch.mangled,
        "workload": launch.workload,
        "device": launch.device.name,
        "compute_capability": launch.device.cc,
        "grid": None if launch.grid is None else list(launch.grid),
        "block": None if launch.block is None else list(launch.block),
        "nvtx": [{"domain": r.domain, "name": r.name, "kind": r.kind} for r in launch.nvtx],
    }


def launch_document(a: Account) -> dict[str, Any]:
    """Return one entry of ``launches`` of ``cyinst.report/1``."""
    t, w, o = a.throughputs_pct, a.per_work, a.occupancy
    return {
        **launch_identity(a.launch),
        "duration_ns": a.duration_ns,
        "sm_clock_hz": a.clock_hz,
        "elapsed_cycles": a.elapsed_cycles,
        "active_cycles": a.active_cycles,
        "active_share": a.active_share,
        "issued_instructions": a.issued_instructions,
        "executed_instructions": a.executed_instructions,
        "issue_rate": a.issue_rate,
        "warp_cycles_per_issued_instruction": a.warp_cycles_per_issued_instruction,
        "states": {s.value: c for s, c in a.states.items()} or None,
        "sampled_states": _sampled(a.sampled_states),
        "residual_cycles": a.residual_cycles,
        "residual_pct": a.residual_pct,
        "identity_residual_pct": a.identity_residual_pct,
        "no_eligible_pct": a.no_eligible_pct,
        "issue_slots": _issue_slots(a.issue_slots),
        "samples": _samples(a.samples),
        "active_warps_per_scheduler": a.active_warps,
        "eligible_warps_per_scheduler": a.eligible_warps,
        "threads_per_instruction": a.threads_per_instruction,
        **{f"{unit}_throughput_pct": t.get(unit) for unit in ("sm", "memory", "l1tex", "l2", "dram")},
        "achieved_occupancy_pct": o.achieved_pct,
        "theoretical_occupancy_pct": o.theoretical_pct,
        "occupancy_limits": dict(o.limits) or None,
        "occupancy_limiters": list(o.limiters),
        "registers_per_thread": o.registers_per_thread,
        "shared_bytes_per_block": o.shared_bytes_per_block,
        "waves_per_sm": o.waves_per_sm,
        "opcodes": dict(a.opcodes) or None,
        "opcode_classes": {c.value: n for c, n in a.opcode_classes.items()} or None,
        "memory_accesses": [
            {
                "space": m.access.space,
                "kind": m.access.kind,
                "bits": m.access.bits,
                "instructions": m.instructions,
            }
            for m in a.memory
        ]
        if a.opcodes
        else None,
        "tensor_instructions": None if a.tensor is None else a.tensor.instructions,
        "executed_macs": None if a.tensor is None else a.tensor.macs,
        "spill_instructions": a.spill_instructions,
        "passes": a.passes,
        "macs": None if w is None else w.work.macs,
        "instructions_per_gmac": None if w is None else w.instructions,
        "cycles_per_gmac": None if w is None else w.cycles,
        "us_per_gmac": None if w is None else w.us,
        "bytes_per_mac": None if w is None else w.bytes_per_mac,
        "padding_waste_pct": None if w is None else w.padding_waste_pct,
        "bound": {"kind": a.bound.kind, "sentence": a.bound.sentence},
        "findings": [_finding(f) for f in a.findings],
        "derived": dict(a.derived),
        "not_collected": _not_collected(a.not_collected),
    }


def comparison_document(c: Comparison) -> dict[str, Any]:
    """Return the ``cyinst.compare/1`` document of one pair; times are ns, or ns per GMAC when ``per_work``."""
    return {
        "schema": COMPARE_SCHEMA,
        "before": {**launch_identity(c.before.launch), "duration_ns": c.before.duration_ns},
        "after": {**launch_identity(c.after.launch), "duration_ns": c.after.duration_ns},
        "per_work": c.per_work,
        "before_ns": c.before_ns,
        "after_ns": c.after_ns,
        "delta_ns": c.delta_ns,
        "delta_pct": c.delta_pct,
        "sentence": c.sentence,
        "factors": [_term(t) for t in c.factors],
        "terms": [_term(t) for t in c.terms],
        "remainder_ns": c.remainder_ns,
        "not_collected": _not_collected(c.not_collected),
        "refusals": [{"rule": r.rule, "text": r.text} for r in c.refusals],
        "cautions": [{"rule": r.rule, "text": r.text} for r in c.cautions],
        "by_region": None if c.by_region is None else by_region_document(c.by_region),
    }


def comparisons_document(
    comparisons: Sequence[Comparison], unpaired: tuple[Sequence[LaunchProfile], Sequence[LaunchProfile]]
) -> dict[str, Any]:
    """Return the document of one pair as it is, of several as ``cyinst.compare-set/1``."""
    if len(comparisons) == 1 and not any(unpaired):
        return comparison_document(comparisons[0])
    return {
        "schema": COMPARE_SET_SCHEMA,
        "comparisons": [comparison_document(c) for c in comparisons],
        "unpaired_before": [launch_identity(x) for x in unpaired[0]],
        "unpaired_after": [launch_identity(x) for x in unpaired[1]],
    }


def report_frame(accounts: Sequence[Account]) -> pd.DataFrame:
    """Return the rows of all launches as one DataFrame; ``value`` is numeric, text goes to ``text``."""
    import pandas as pd

    frame = pd.DataFrame(report_rows(accounts))
    numeric = pd.to_numeric(frame["value"], errors="coerce")
    frame["text"] = frame["value"].where(numeric.isna() & frame["value"].notna()).astype("string")
    frame["value"] = numeric.astype("float64")
    return frame


def comparison_frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Return the terms of all pairs as one DataFrame, led by the two kernels and their launch indices."""
    import pandas as pd

    return pd.DataFrame(comparison_rows(comparisons))


def report_rows(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return every number of the books of several launches as flat rows."""
    return [
        {"launch": a.launch.index, "kernel": a.launch.kernel}
        | {name: getattr(row, name) for name in ("group", "name", "value", "unit", "basis", "standard_error")}
        for a in accounts
        for row in a.rows()
    ]


def comparison_rows(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the terms and the remainder of several pairs as flat rows."""
    rows = []
    for c in comparisons:
        head = {
            "before_launch": c.before.launch.index,
            "before_kernel": c.before.launch.kernel,
            "after_launch": c.after.launch.index,
            "after_kernel": c.after.launch.kernel,
        }
        terms = [_term(t) for t in c.terms]
        if c.remainder_ns is not None:
            share = 100.0 * c.remainder_ns / c.delta_ns if c.delta_ns else None
            terms.append(_term(Term("remainder", "", c.remainder_ns, share, None, None, "")))
        rows += [head | term for term in terms]
    return rows


def to_json(document: Mapping[str, Any]) -> str:
    """Return indented JSON; NaN and infinity, which JSON has not, raise ValueError rather than slip through."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with a header; None is an empty field."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all."""
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_parquet(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a DataFrame as Parquet, whole or not at all. Raises MissingToolError without pyarrow."""
    try:
        import pyarrow  # type: ignore[import-untyped] # noqa: F401
    except ImportError:
        raise MissingToolError("Parquet needs pyarrow: pip install 'cyinst[parquet]'") from None
    _replace(path, lambda temporary: frame.to_parquet(temporary, index=False))


def _replace(path: str | os.PathLike[str], write: Any) -> None:
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(temporary)
        temporary.replace(target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror}); give --output a writable path") from error
    finally:
        temporary.unlink(missing_ok=True)


def _issue_slots(slots: IssueSlots | None) -> dict[str, Any] | None:
    if slots is None:
        return None
    return {
        "issued_pct": slots.issued_pct,
        "lost_pct": slots.lost_pct,
        "lost": {s.value: {"pct": x.value, "standard_error": x.standard_error} for s, x in slots.lost.items()} or None,
    }


def _sampled(states: Mapping[WarpState, Sampled]) -> dict[str, Any] | None:
    return {s.value: {"cycles": x.value, "standard_error": x.standard_error} for s, x in states.items()} or None


def _samples(samples: Samples | None) -> dict[str, Any] | None:
    if samples is None:
        return None
    return {
        "total": samples.total,
        "not_issued": samples.total_not_issued,
        "interval_cycles": samples.interval_cycles,
        "dropped_bytes": samples.dropped_bytes,
        "states": {s.value: n for s, n in samples.states.items()},
        "states_not_issued": {s.value: n for s, n in samples.not_issued.items()},
    }


def _finding(f: Finding) -> dict[str, Any]:
    def evidence(e: Evidence) -> dict[str, Any]:
        return {"metric": e.metric, "value": e.value, "unit": e.unit}

    return {
        "rule": f.rule,
        "severity": f.severity,
        "text": f.text,
        "evidence": [evidence(e) for e in f.evidence],
    }


def _not_collected(missing: Sequence[NotCollected]) -> list[dict[str, str]]:
    return [{"quantity": m.quantity, "metric": m.metric, "section": m.section} for m in missing]


def _term(t: Term) -> dict[str, Any]:
    return {name: getattr(t, name) for name in Term.__dataclass_fields__}
