"""Write docs/coverage.md: what was tried on which GPUs and ncu versions, and how well the books close there.

Reads the bundled captures, tests/captures, and the strangers' reports of the folder CYINST_CORPUS (or
../shared/corpus). Only figures leave those reports: architecture, ncu version, counts, residuals.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from profiler.accounting import account
from profiler.books import Account
from profiler.errors import ReportError
from profiler.ncu_parse import load
from profiler.vocabulary import metrics_for_accounting

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("CYINST_CORPUS", ROOT.parent / "shared" / "corpus"))


def row(key: tuple[str, ...], files: int, books: list[Account]) -> str:
    """Return one line of the table."""
    states = [abs(a.residual_pct) for a in books if a.residual_pct is not None]
    times = [abs(a.identity_residual_pct) for a in books if a.identity_residual_pct is not None]
    samples = sum(1 for a in books if a.samples is not None and a.samples.total_not_issued)

    def spread(values: list[float], digits: int) -> str:
        if not values:
            return "not collected"
        return f"{statistics.median(values):.{digits}f} / {max(values):.{digits}f} %"

    cells = [*key, files, len(books), len(states), samples, spread(states, 2), spread(times, 4)]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(paths: Iterable[Path]) -> str:
    """Return the document."""
    groups: dict[tuple[str, ...], list[tuple[str, list[Account]]]] = defaultdict(list)
    refused = []
    for path in paths:
        try:
            report = load(path, metrics=metrics_for_accounting(), instances=False, sources=False)
        except ReportError:
            refused.append(path)
            continue
        books = [account(x) for x in report.launches]
        version = report.conditions.ncu_version
        key = (f"sm_{(books[0].launch.device.cc or '?').replace('.', '')}", version[:6] if version else "before 2020")
        groups[key].append((path.name, books))
    order = sorted(groups, key=lambda k: (int(k[0][3:]), k[1]))
    lines = [row(key, len(groups[key]), [a for _, books in groups[key] for a in books]) for key in order]
    head = [
        "# What was tried",
        "",
        "Written by `python scripts/coverage_table.py` from the bundled captures, `tests/captures` and reports found",
        "in public repositories (other people's GPUs, drivers and ncu versions). Residuals are median / worst over the",
        "launches: of the warp states against Warp Cycles Per Issued Instruction, and of the time identity.",
        "Every report opened, except an empty file, which gives one line.",
        "",
        "| GPU | ncu | reports | launches | with states | with samples | states residual | identity residual |",
        "|---|---|---|---|---|---|---|---|",
    ]
    assert all(p.stat().st_size == 0 for p in refused), f"refused although not empty: {refused}"
    tail = [
        "",
        "The worst state residuals are launches of a few microseconds, whose states ncu collects in several passes.",
        "",
    ]
    return "\n".join([*head, *lines, *tail])


if __name__ == "__main__":
    files = sorted([*(ROOT / "profiler" / "demo").glob("*.ncu-rep"), *(ROOT / "tests" / "captures").glob("*.ncu-rep")])
    if not CORPUS.is_dir():
        sys.exit(f"{CORPUS}: no such folder; set CYINST_CORPUS to a folder of reports")
    strangers = sorted(p for p in CORPUS.iterdir() if p.suffix in (".ncu-rep", ".nsight-cuprof-report"))
    (ROOT / "docs" / "coverage.md").write_text(main([*files, *strangers]), encoding="utf-8")
    print("docs/coverage.md is rewritten")
