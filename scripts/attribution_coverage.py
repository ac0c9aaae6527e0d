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
from profiler.vocabulary import WarpState, metrics_for_attribution

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("CYINST_CORPUS") or ROOT.parent / "shared" / "corpus")
SCOREBOARDS = (WarpState.LONG_SCOREBOARD, WarpState.SHORT_SCOREBOARD)


@dataclass
class Tally:
    """Scoreboard samples of some launches: with a producer, with one, with a joint set, outside the kernel."""

    launches: int = 0
    samples: int = 0
    unique: int = 0
    joint: int = 0
    outside: int = 0
    waits: int = 0
    unique_waits: int = 0
    methods: Counter[Method] = field(default_factory=Counter)
    decided: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)

    def add(self, hot: Hot) -> None:
        """Count one launch."""
        rows = [r for r in hot.rows if r.state in SCOREBOARDS]
        inside = [r for r in rows if r.place is not None]
        total = sum(r.samples for r in inside)
        one = sum(r.samples for r in inside if len(r.producers) == 1)
        together = sum(r.samples for r in inside if len(r.producers) > 1 and all(p.joint for p in r.producers))
        self.launches += 1
        self.samples += total
        self.outside += sum(r.samples for r in rows) - total
        self.unique += one
        self.joint += together
        self.waits += len(inside)
        self.unique_waits += sum(1 for r in inside if len(r.producers) == 1)
        for r in inside:
            self.methods[r.method] += r.samples
        if total:
            self.single.append(100 * one / total)
            self.decided.append(100 * (one + together) / total)


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

    def share(part: float, whole: float, digits: int = 1) -> str:
        return f"{100 * part / whole:.{digits}f}" if whole else "-"

    def middle(values: list[float]) -> str:
        return f"{statistics.median(values):.1f}" if values else "-"

    cells = [
        name, t.launches, f"{t.samples:,}", f"{t.outside:,}",
        share(t.samples - t.methods[Method.UNKNOWN], t.samples, 2), share(t.unique, t.samples),
        share(t.joint, t.samples), share(t.unique_waits, t.waits), middle(t.single), middle(t.decided),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


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
    methods = tallies["sm_75 and later"]
    by_method = ", ".join(f"{m.value} {100 * n / methods.samples:.2f} %" for m, n in methods.methods.most_common())
    text = """# How often a producer is found

Written by `python scripts/attribution_coverage.py` over the bundled captures, `tests/captures` and reports found in
public repositories. Samples are those in long_scoreboard and short_scoreboard inside the kernel's code; outside are
samples at program counters of no function of the launch (or of code that nvdisasm refuses: sm_70).

- attributed: at least one producer was found.
- unique: exactly one. joint: the instruction reads the results of several, and waits for all of them; since loads
  overtake one another (docs/hot.md), their cost is one cause and is not split. What is neither has alternatives on
  different paths, weighted by executed counts.
- waits: the unique share of waiting instructions, rather than of samples.
- the last two columns are medians over launches: of the unique share, and of unique and joint together.

| GPU | launches | samples | outside | attributed % | unique % | joint % | waits % | median unique % | + joint % |
|---|---|---|---|---|---|---|---|---|---|
"""
    return text + "\n".join(rows) + f"\n\nMethods on sm_75 and later: {by_method}.\n"


if __name__ == "__main__":
    own = sorted([*(ROOT / "profiler" / "demo").glob("*.ncu-rep"), *(ROOT / "tests" / "captures").glob("*.ncu-rep")])
    if not CORPUS.is_dir():
        sys.exit(f"{CORPUS}: no such folder; set CYINST_CORPUS to a folder of reports")
    strangers = sorted(p for p in CORPUS.iterdir() if p.suffix == ".ncu-rep")
    text = document([*own, *strangers])
    (ROOT / "docs" / "attribution-coverage.md").write_text(text, encoding="utf-8")
    print(text)
