"""Time of ``cyinst report`` and ``cyinst hot``, whole processes, by what the cache holds. Prints a Markdown table.

Usage: report_wall_time.py [--runs N] [REPORT ...]     default: the bundled captures, 15 runs

Each run has a cache of its own: empty, with nvdisasm's listings alone (``hot``), and with the report, too. Files and
commands take turns, so that a slow moment of the machine hits all of them. Processor time is that of the command and
its children, and says more than wall time on a busy machine. The stages of a report that was read before are measured
in fresh processes; the command itself disassembles in a thread beside. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / "profiler" / "demo"
STAGES = """
import time
marks = [time.perf_counter()]
import gc, io, json, sys
gc.set_threshold(200_000, 50, 50)
from profiler import cli
from profiler.commands import common, hot
from profiler.attribution import attribute_launch
from profiler.cubin import open_code
from profiler.ncu_parse import load
from profiler.selection import longest_sampled, select
from profiler.vocabulary import metrics_for_attribution
from dashboards.terminal.hot import draw_hot
marks.append(time.perf_counter())
report = load(sys.argv[1], metrics=metrics_for_attribution())
marks.append(time.perf_counter())
reader = open_code(sys.argv[1])
marks.append(time.perf_counter())
found = attribute_launch(report, longest_sampled(select(report, None, None)), reader=reader)
marks.append(time.perf_counter())
draw_hot(common.console_for(io.StringIO()), found.hot, "cause", None, None, found.sources)
marks.append(time.perf_counter())
print(json.dumps([b - a for a, b in zip(marks, marks[1:])]))
"""
Times = list[tuple[float, float]]


def whole(command: str, path: Path, cache: str) -> tuple[float, float]:
    """Return (wall, processor) seconds of one process, its output discarded."""
    words = [sys.executable, "-m", "profiler.cli", command, str(path)]
    before, start = os.times(), time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "CYINST_CACHE": cache})
    wall, after = time.perf_counter() - start, os.times()
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return wall, user + system


def stages(path: Path, cache: str) -> list[float]:
    """Return the seconds of import, read, disassemble, attribute and draw in one fresh process with a full cache."""
    done = subprocess.run(
        [sys.executable, "-c", STAGES, str(path)],
        capture_output=True, text=True, check=True, env={**os.environ, "CYINST_CACHE": cache},
    )  # fmt: skip
    return [float(x) for x in json.loads(done.stdout)]


def turn(path: Path, found: dict[str, Times]) -> list[float]:
    """Time every command once with each cache, add that to ``found`` by name, and return the stages."""
    with tempfile.TemporaryDirectory() as cache:
        for command in ("report", "hot"):
            found.setdefault(f"{command}, nothing kept", []).append(whole(command, path, cache))
            if command == "hot":
                shutil.rmtree(Path(cache) / "reports")
                found.setdefault("hot, listings kept", []).append(whole(command, path, cache))
            found.setdefault(f"{command}, read before", []).append(whole(command, path, cache))
        return stages(path, cache)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of cyinst report and cyinst hot, by file and cache.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("reports", nargs="*", type=Path, default=sorted(DEMO.glob("*.ncu-rep")))
    args = parser.parse_args()
    times: dict[Path, dict[str, Times]] = {path: {} for path in args.reports}
    splits: dict[Path, list[list[float]]] = {path: [] for path in args.reports}
    for path in args.reports:
        turn(path, {})
    for _ in range(args.runs):
        for path in args.reports:
            splits[path].append(turn(path, times[path]))
    print(f"Median of {args.runs} runs, {os.cpu_count()} cores, Python {sys.version.split()[0]}; seconds.\n")
    print("| report | MB | command | wall | processor |\n|---|---|---|---|---|")
    for path in args.reports:
        for name, column in times[path].items():
            wall, processor = (statistics.median(part) for part in zip(*column, strict=True))
            size = path.stat().st_size / 1e6
            print(f"| {path.name} | {size:.1f} | {name} | {wall:.3f} | {processor:.3f} |")
    print("\n`hot`, read before:\n\n| report | import | read | code | attribute | draw |\n|---|---|---|---|---|---|")
    for path in args.reports:
        parts = " | ".join(f"{statistics.median(column):.3f}" for column in zip(*splits[path], strict=True))
        print(f"| {path.name} | {parts} |")


if __name__ == "__main__":
    main()
