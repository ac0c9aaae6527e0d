"""Does attribution scale with the size of a function, and what does ``cyinst hot`` cost? Prints Markdown tables.

Usage: attribution_scaling.py [--runs N] [--walls N] [--sizes N,N,...]

The functions are made up: staged loops of loads, waits, arithmetic, shared memory, matrix instructions and barriers
inside one outermost loop, as an unrolled GEMM has them, with samples on a third of the instructions. Attribution is
pure, so it is timed in this process; ``cyinst hot`` is timed as a whole process, with the disassembly cache empty and
filled.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from profiler.accounting import account
from profiler.books import Account
from profiler.code import INSTRUCTION_BYTES, Code, Control, Frame, Function, Instruction
from profiler.model import Device, Instances, LaunchProfile, Metric
from profiler.pcsample import attribute
from profiler.regions import Regions, Span
from profiler.vocabulary import EXECUTED_PER_PC, NO_ELIGIBLE, WARP_LATENCY, WarpState

DEMO = Path(__file__).resolve().parent.parent / "profiler" / "demo"
BASE = 0x7F0000000000
SOURCE = "made_up.cu"
STALLS = (WarpState.LONG_SCOREBOARD, WarpState.SHORT_SCOREBOARD, WarpState.WAIT, WarpState.MATH_PIPE_THROTTLE)


class Writer:
    """Collects instructions; ``jump`` closes a loop or skips forward."""

    def __init__(self) -> None:
        """Start empty."""
        self.code: list[Instruction] = []

    def add(
        self,
        opcode: str,
        *operands: str,
        write: int | None = None,
        read: int | None = None,
        waits: tuple[int, ...] = (),
        predicate: str | None = None,
        target: int | None = None,
    ) -> None:
        """Append one instruction; ``target`` is the index of the instruction that it branches to."""
        n = len(self.code)
        control = Control(2, False, write, read, sum(1 << w for w in waits), 0)
        goes_to = None if target is None else target * INSTRUCTION_BYTES
        frames = (Frame(SOURCE, 1 + n // 4),)
        offset = n * INSTRUCTION_BYTES
        self.code.append(Instruction(n, offset, predicate, opcode, operands, control, frames, goes_to))


def made_up_function(size: int, seed: int = 0) -> Function:
    """Return a function of about ``size`` instructions: stages of 60 to 100 inside one outermost loop."""
    rng = random.Random(seed)
    w = Writer()
    w.add("LDC", "R1", "c[0x0][0x210]")
    w.add("LDC", "R7", "c[0x0][0x214]")
    w.add("S2R", "R0", "SR_TID.X", write=0)
    w.add("IMAD.WIDE", "R2", "R0", "0x10", "R2", waits=(0,))
    outermost = len(w.code)
    while len(w.code) < size - 100:
        _stage(w, rng)
    w.add("IADD3", "R0", "R0", "0x1", "RZ")
    w.add("ISETP.GE.AND", "P0", "PT", "R0", "R1", "PT")
    w.add("BRA", "`(outermost)", predicate="!P0", target=outermost)
    w.add("STG.E", "desc[UR4][R2.64]", "R8")
    w.add("EXIT")
    while len(w.code) < size:
        w.add("NOP")
    return Function("made_up", BASE, tuple(w.code))


def _stage(w: Writer, rng: random.Random) -> None:
    """A pass of a loop: fetch, convert, store to shared memory, barrier, read back, multiply."""
    start = len(w.code)
    loads = rng.randint(2, 6)
    for n in range(loads):
        w.add("IADD3", f"R{200 + 2 * n}", "R2", f"{hex(16 * n)}", "RZ")
        w.add("IADD3.X", f"R{201 + 2 * n}", "R3", "RZ", "RZ", "P1", "!PT")
        w.add("LDG.E.128", f"R{8 + 4 * n}", f"desc[UR4][R{200 + 2 * n}.64]", write=n % 3)
    skip = len(w.code) + 4
    w.add("BRA", "`(skip)", predicate="P2", target=skip)
    for n in range(3):
        w.add("IMAD", f"R{60 + n}", f"R{60 + n}", "R1", "RZ")
    for n in range(loads):
        for k in range(4):
            r = 8 + 4 * n + k
            # A scoreboard is waited for once. R1 was defined before the outermost loop, a long way back.
            waits = (n,) if n < 3 and not k else ()
            w.add("LOP3.LUT", f"R{r}", f"R{r}", "R1", "RZ", "0xc0", "!PT", waits=waits)
        w.add("STS.128", f"[R4+{hex(16 * n)}]", f"R{8 + 4 * n}", read=5)
    w.add("BAR.SYNC.DEFER_BLOCKING", "0x0", waits=(5,))
    for n in range(4):
        w.add("LDS.128", f"R{40 + 4 * n}", f"[R5+{hex(16 * n)}]", write=3 + n % 2)
    for n in range(rng.randint(6, 12)):
        a, c = 40 + 4 * (n % 4), 100 + 4 * (n % 12)
        w.add("IMMA.16816.S8.S8", f"R{c}", f"R{a}.ROW", "R44.COL", f"R{c}", waits=(3, 4) if not n else ())
    for n in range(rng.randint(8, 20)):
        w.add("FFMA", f"R{150 + n}", f"R{100 + n}", "R7", f"R{150 + n}")
    w.add("ISETP.GE.AND", "P3", "PT", "R6", "R7", "PT")
    w.add("BRA", "`(stage)", predicate="!P3", target=start)


def made_up_launch(function: Function, seed: int = 0) -> LaunchProfile:
    """Return a launch with executed counts everywhere and samples on a third of the instructions."""
    rng = random.Random(seed)
    per_pc: dict[str, dict[int, int]] = {EXECUTED_PER_PC: {}}
    for state in WarpState:
        per_pc[state.sampled_metric] = {}
        per_pc[state.sampled_not_issued_metric] = {}
    for instruction in function.instructions:
        pc = BASE + instruction.offset
        per_pc[EXECUTED_PER_PC][pc] = 1000
        waits = instruction.control is not None and instruction.control.wait_mask
        if not waits and rng.random() > 1 / 3:
            continue
        for state in (WarpState.SELECTED, *(STALLS if waits else STALLS[2:])):
            n = rng.randint(1, 100)
            per_pc[state.sampled_metric][pc] = n
            per_pc[state.sampled_not_issued_metric][pc] = rng.randint(0, n) if state.is_stall else 0
    metrics = {
        name: Metric(name, "", sum(values.values()), Instances(tuple(values.values()), tuple(values)))
        for name, values in per_pc.items()
    }
    for spec, value in ((NO_ELIGIBLE, 40.0), (WARP_LATENCY, 8.0)):
        metrics[spec.name] = Metric(spec.name, spec.unit, value)
    device = Device("made up", (9, 0), 132, 4)
    return LaunchProfile(0, 0, 0, "kernel", "made_up", "made_up", "made_up", device, None, None, None, (), (), metrics)


def case(size: int) -> tuple[Account, Code, Regions]:
    """Return what attribution takes, for a function of a size: books, code, and ten regions."""
    function = made_up_function(size)
    lines = 1 + size // 4
    spans = tuple(Span(SOURCE, 1 + lines * n // 10, lines * (n + 1) // 10, f"part {n}") for n in range(10))
    regions = Regions("region file", spans)
    return account(made_up_launch(function)), Code("0", 90, {function.name: function}), regions


def seconds(size: int) -> float:
    """Return the seconds of one attribution; nothing is kept between calls."""
    books, code, regions = case(size)
    start = time.perf_counter()
    attribute(books, code, regions)
    return time.perf_counter() - start


def wall(report: Path, cache: str) -> float:
    """Return the seconds of one ``cyinst hot`` process, its output discarded."""
    command = [sys.executable, "-m", "profiler.cli", "hot", str(report)]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "CYINST_CACHE": cache})
    return time.perf_counter() - start


def walls(reports: list[Path], runs: int) -> Iterator[tuple[Path, float, float]]:
    """Yield (report, cold, warm) medians; reports take turns, and each cold run has an empty cache of its own."""
    cold: dict[Path, list[float]] = {p: [] for p in reports}
    warm: dict[Path, list[float]] = {p: [] for p in reports}
    for _ in range(runs):
        for report in reports:
            with tempfile.TemporaryDirectory() as cache:
                cold[report].append(wall(report, cache))
                warm[report].append(wall(report, cache))
    for report in reports:
        yield report, statistics.median(cold[report]), statistics.median(warm[report])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of attribution by size of the function, and of cyinst hot.")
    parser.add_argument("--runs", type=int, default=3, help="Runs of each attribution.")
    parser.add_argument("--walls", type=int, default=7, help="Runs of each cyinst hot; 0 leaves that table out.")
    parser.add_argument("--sizes", default="1000,10000,100000", help="Instructions, comma-separated.")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}.\n")
    print(f"Attribution alone, median of {args.runs}:\n")
    print("| instructions | seconds | us per instruction |\n|---|---|---|")
    for size in map(int, args.sizes.split(",")):
        median = statistics.median(seconds(size) for _ in range(args.runs))
        print(f"| {size:,} | {median:.3f} | {1e6 * median / size:.1f} |", flush=True)
    if args.walls:
        print(f"\n`cyinst hot`, whole process, median of {args.walls}, seconds:\n")
        print("| report | cold (nothing disassembled before) | warm |\n|---|---|---|")
        for report, cold, warm in walls(sorted(DEMO.glob("*.ncu-rep")), args.walls):
            print(f"| {report.name} | {cold:.3f} | {warm:.3f} |", flush=True)


if __name__ == "__main__":
    main()
