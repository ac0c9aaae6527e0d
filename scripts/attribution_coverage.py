"""Write docs/attribution-coverage.md: how often a producer is found, by architecture, over other people's reports.

Reads the bundled captures, tests/captures, and the reports of the folder CYINST_CORPUS (or ../shared/corpus). Only
figures leave those reports. Counts in-kernel samples in the two scoreboard states, the ones with a producer elsewhere.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from profiler.attribution import attribute_launch
from profiler.blame import Hot, Method
from profiler.errors import CyinstError
from profiler.ncu_parse import load
from profiler.pcsample import metrics_for_attribution
from profiler.vocabulary import WarpState

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("CYINST_CORPUS") or ROOT.parent / "shared" / "corpus")
SCOREBOARDS = (WarpState.LONG_SCOREBOARD, WarpState.SHORT_SCOREBOARD)


@dataclass
class Tally:
    """Scoreboard samples of some launches: by method, with one producer, and outside the kernel."""

    launches: int = 0
    samples: int = 0
    unique: int = 0
    outside: int = 0
    methods: Counter[Method] = field(default_factory=Counter)
    shares: list[float] = field(default_factory=list)
    attributed: list[float] = field(default_factory=list)

    def add(self, hot: Hot) -> None:
        """Count one launch."""
        rows = [r for r in hot.rows if r.state in SCOREBOARDS]
        inside = [r for r in rows if r.place is not None]
        total = sum(r.samples for r in inside)
        self.launches += 1
        self.samples += total
        self.outside += sum(r.samples for r in rows) - total
        for r in inside:
            self.methods[r.method] += r.samples
        one = sum(r.samples for r in inside if len(r.producers) == 1)
        self.unique += one
        if total:
            self.shares.append(100 * one / total)
            known = sum(r.samples for r in inside if r.producers)
            self.attributed.append(100 * known / total)


def hots(paths: Iterable[Path]) -> Iterator[tuple[Path, Hot]]:
    """Yield the attribution of every launch with samples."""
    for path in paths:
        try:
            report = load(path, metrics=metrics_for_attribution())
        except CyinstError:
            continue
        for launch in report.launches:
            if any(name.startswith("smsp__pcsamp_warps") for name in launch.metrics):
                yield path, attribute_launch(report, launch).hot


def line(name: str, t: Tally) -> str:
    """Return one row of the table."""
    share = 100 * (1 - t.methods[Method.UNKNOWN] / t.samples) if t.samples else 0.0
    methods = ", ".join(f"{m.value} {100 * n / t.samples:.1f}" for m, n in t.methods.most_common() if n)
    median = f"{statistics.median(t.shares):.1f}" if t.shares else "-"
    unique = f"{100 * t.unique / t.samples:.1f}" if t.samples else "-"
    return f"| {name} | {t.launches} | {t.samples:,} | {t.outside:,} | {share:.2f} | {unique} | {median} | {methods} |"


def document(paths: Iterable[Path]) -> str:
    """Return the document."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for _, hot in hots(paths):
        cc = hot.account.launch.device.compute_capability
        name = f"sm_{cc[0]}{cc[1]}" if cc else "unknown"
        tallies[name].add(hot)
        if cc and cc >= (7, 5):
            tallies["sm_75 and later"].add(hot)
    order = sorted((n for n in tallies if n != "sm_75 and later"), key=lambda n: int(n[3:]))
    rows = [line(name, tallies[name]) for name in [*order, "sm_75 and later"]]
    return "\n".join(
        [
            "# How often a producer is found",
            "",
            "Written by `python scripts/attribution_coverage.py` over the bundled captures, `tests/captures` and reports",
            "found in public repositories. Samples are those in long_scoreboard and short_scoreboard inside the kernel's",
            "code (outside: samples at program counters that belong to no function of the launch). Attributed: at least",
            "one producer; unique: exactly one; methods in per cent of the samples.",
            "",
            "| GPU | launches | samples | outside | attributed % | unique % | median launch, unique % | methods % |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    own = sorted([*(ROOT / "profiler" / "demo").glob("*.ncu-rep"), *(ROOT / "tests" / "captures").glob("*.ncu-rep")])
    if not CORPUS.is_dir():
        sys.exit(f"{CORPUS}: no such folder; set CYINST_CORPUS to a folder of reports")
    strangers = sorted(p for p in CORPUS.iterdir() if p.suffix == ".ncu-rep")
    text = document([*own, *strangers])
    (ROOT / "docs" / "attribution-coverage.md").write_text(text, encoding="utf-8")
    print(text)
