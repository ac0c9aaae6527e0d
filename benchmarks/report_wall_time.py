"""Wall time of ``cyinst report``: whole process, and where it goes. Prints a Markdown table; asserts nothing.

Usage: report_wall_time.py [--runs N] [REPORT ...]     default: the bundled captures, 15 runs

Files take turns, so that a slow moment of the machine hits all of them. The split is measured in fresh processes, one
stage after the other; the command itself overlaps reading with imports, so the stages add up to more than the whole.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / "profiler" / "demo"
STAGES = """
import time
marks = [time.perf_counter()]
import io, json, sys
from profiler import cli
from profiler.commands import common, report
from profiler.accounting import account
from profiler.ncu_parse import load
from profiler.vocabulary import metrics_for_accounting
from dashboards.terminal.report import draw_report
marks.append(time.perf_counter())
loaded = load(sys.argv[1], metrics=metrics_for_accounting(), instances=False, sources=False)
marks.append(time.perf_counter())
books = [account(x) for x in loaded.launches]
marks.append(time.perf_counter())
longest = max(books, key=lambda a: a.duration_ns or 0.0)
draw_report(common.console_for(io.StringIO()), loaded.path, loaded.conditions, books, [longest])
marks.append(time.perf_counter())
print(json.dumps([b - a for a, b in zip(marks, marks[1:])]))
"""


def whole(path: Path) -> float:
    """Return the seconds of one ``cyinst report`` process, its output discarded."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "profiler.cli", "report", str(path)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def stages(path: Path) -> list[float]:
    """Return the seconds of import, load, analyse and draw in one fresh process."""
    done = subprocess.run([sys.executable, "-c", STAGES, str(path)], capture_output=True, text=True, check=True)
    return [float(x) for x in json.loads(done.stdout)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Wall time of cyinst report, by file.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("reports", nargs="*", type=Path, default=sorted(DEMO.glob("*.ncu-rep")))
    args = parser.parse_args()
    for path in args.reports:
        whole(path)
    walls: dict[Path, list[float]] = {p: [] for p in args.reports}
    splits: dict[Path, list[list[float]]] = {p: [] for p in args.reports}
    for _ in range(args.runs):
        for path in args.reports:
            walls[path].append(whole(path))
            splits[path].append(stages(path))
    print(f"Median of {args.runs} runs, {os.cpu_count()} cores, Python {sys.version.split()[0]}; seconds.\n")
    print("| report | MB | whole process | import | load | analyse | draw |\n|---|---|---|---|---|---|---|")
    for path in args.reports:
        parts = " | ".join(f"{statistics.median(column):.3f}" for column in zip(*splits[path], strict=True))
        print(f"| {path.name} | {path.stat().st_size / 1e6:.1f} | {statistics.median(walls[path]):.3f} | {parts} |")


if __name__ == "__main__":
    main()
