"""Record every bundled report and every report of the tests anew, on one GPU of compute capability 9.0.

    python scripts/record_captures.py record OUT [demo|ladders|planted|tests ...]     with a GPU, ncu, nvcc, CuPy
    python scripts/record_captures.py install OUT                       anywhere: place them, rewrite the tables

Works in a neutral folder, with a home of its own, so that a report shows no user, host or folder of the machine; each
is searched for them before it is kept. Leaves the card's clocks alone. ``install`` compresses the reports of
``kernels``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profiler.loading import bundled, load_specimen, neighbour
from profiler.plans import plan_named

ROOT = Path(__file__).resolve().parent.parent
WORK = Path("/tmp/cyinst")
NCU = ("ncu", "--clock-control", "none", "-f")
SECTIONS = ("WarpStateStats", "SchedulerStats", "SpeedOfLight", "InstructionStats", "Occupancy", "LaunchStats")
SAMPLES = "group:smsp__pcsamp_warp_stall_reasons,group:smsp__pcsamp_warp_stall_reasons_not_issued,inst_executed"
LAUNCH = ("python3", "-m", "profiler.cli", "launch")
DEMO = {"q6k_byte_loads": "3_three_blocks", "q6k_wide_loads": "4_wide_loads"}
TOKENS = (2630, 512, 4096)
# tests/captures: report, what the fixture does, options of ncu. Each shows something that a reader must cope with.
BOOKS = [word for name in (*SECTIONS, "SourceCounters") for word in ("--section", name)]
CASES: tuple[tuple[str, str, list[str]], ...] = (
    ("kinds", "kinds", ["--nvtx", "--import-source", "yes", *BOOKS]),
    ("basic", "many", []),
    ("cache_none", "kinds", ["--cache-control", "none", "-c", "1", *BOOKS]),
    (
        "application_replay", "kinds",
        ["--replay-mode", "application", "-c", "1", "--section", "SchedulerStats", "--section", "SpeedOfLight"],
    ),
    (
        "range_replay", "ranges",
        ["--replay-mode", "range", "--nvtx", "--nvtx-include", "step/", "--section", "SpeedOfLight"],
    ),
    ("graph", "graph", ["--graph-profiling", "graph", "--section", "SpeedOfLight"]),
    ("samples_only", "kinds", ["-c", "1", "--section", "SourceCounters"]),
    ("states_only", "kinds", ["-c", "1", "--section", "WarpStateStats"]),
    ("duration_only", "kinds", ["-c", "2", "--metrics", "gpu__time_duration.sum"]),
)  # fmt: skip


def ours(plan: str) -> list[str]:
    """Return a plan's options, its section folder as it is called in the neutral folder."""
    folder = str(plan_named(plan).options()[1])
    return ["profiler/sections" if word == folder else word for word in plan_named(plan).options()]


def demo() -> Iterator[tuple[str, list[str]]]:
    """Yield (report, command) of the bundled pair: all that report, compare and hot can use."""
    for name, rung in DEMO.items():
        options = [*ours("books"), "--import-source", "yes", "-c", "1"]
        only = ["--nvtx", "--nvtx-include", f"cyinst@q6k.{rung}/"]
        yield f"profiler/demo/{name}.sm90", [*NCU, *options, *only, "-o", "OUT", *LAUNCH, f"kernels/q6k:{rung}"]


def ladders() -> Iterator[tuple[str, list[str]]]:
    """Yield (report, command) of each ladder and number of tokens: every rung's launch in one report."""
    for name in ("q6k", "q4k"):
        filters = [
            word
            for variant in load_specimen(ROOT / "kernels" / name).variants
            for word in ("--nvtx-include", f"cyinst@{name}.{variant.name}/")
        ]
        for tokens in TOKENS:
            options = [word for section in SECTIONS for word in ("--section", section)]
            options += ["--nvtx", *filters, "--import-source", "yes"]
            # Samples are most of a report: of one size they will do.
            options += ["--metrics", SAMPLES] if tokens == TOKENS[0] else []
            program = [*LAUNCH, f"kernels/{name}", "--shape", f"tokens={tokens}"]
            yield f"kernels/captures/{name}.{tokens}.sm90", [*NCU, *options, "-o", "OUT", *program]


def truth_of(name: str) -> Any:
    """Return what is known of a planted pair."""
    return neighbour(__file__, f"../kernels/{name}/spec.py").TRUTH


def planted() -> Iterator[tuple[str, list[str]]]:
    """Yield (report, command) of each planted pair: the guilty launch, then its fixed twin's."""
    for name in (name for name in bundled() if name.startswith("planted/")):
        spec = load_specimen(ROOT / "kernels" / name)
        filters = [word for v in spec.variants for word in ("--nvtx-include", f"cyinst@{spec.name}.{v.name}/")]
        options = [*ours("quick"), "--import-source", "yes", "--nvtx", *filters]
        path = f"kernels/planted/captures/{spec.name.removeprefix('planted.')}"
        # Warm caches, as the timings have them.
        command = [*NCU, "--cache-control", "none", *options, "-o", "OUT", *LAUNCH, f"kernels/{name}"]
        if not truth_of(name).joint:
            yield f"{path}.sm90", command
            continue
        for first in ("oldest", "youngest"):
            yield f"{path}.{first}.sm90", [*command, "--split-waits", first]


def tests() -> Iterator[tuple[str, list[str]]]:
    """Yield (report, command) of tests/captures, and of the plan ``quick`` as it is."""
    for name, scenario, options in CASES:
        yield f"tests/captures/{name}.sm90", [*NCU, "-o", "OUT", *options, "./fixture", scenario]
    yield "tests/data/quick.sm90", [*NCU, "-c", "1", *ours("quick"), "-o", "OUT", "./quick"]


GROUPS = {"demo": demo, "ladders": ladders, "planted": planted, "tests": tests}


def stage() -> dict[str, str]:
    """Copy what is run to the neutral folder and build it there; return the environment of the commands."""
    shutil.rmtree(WORK, ignore_errors=True)
    skip = shutil.ignore_patterns("captures", "demo", "__pycache__")
    for folder in ("profiler", "dashboards", "kernels"):
        shutil.copytree(ROOT / folder, WORK / folder, ignore=skip)
    for source in ("tests/captures/fixture.cu", "tests/data/quick.cu"):
        shutil.copy(ROOT / source, WORK)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(WORK), *(path for path in known if path and Path(path).resolve() != ROOT)]
    for name in ("fixture", "quick"):
        words = ["nvcc", "-O3", "-lineinfo", "-arch=sm_90a", "-std=c++17", "-o", name, f"{name}.cu", "-ldl"]
        subprocess.run(words, cwd=WORK, check=True)
    return {**os.environ, "HOME": str(WORK), "PYTHONPATH": os.pathsep.join(paths), "CYINST_CACHE": str(WORK / "cache")}


def betrays(data: bytes) -> list[str]:
    """Return what a report shows of the machine that recorded it."""
    secrets = {socket.gethostname(), f"{Path.home()}/", f"{ROOT}/", f"{sys.prefix}/"} - {"localhost", "/usr/"}
    # A name of a few letters stands in any report.
    return sorted(secret for secret in secrets if len(secret) > 4 and secret.encode() in data)


def record(out: Path, groups: list[str]) -> None:
    """Run every command, and copy its report to ``out`` under the path it has in the repository."""
    environment = stage()
    for group in groups:
        for path, command in GROUPS[group]():
            name = Path(path).name
            done = subprocess.run(
                [name if word == "OUT" else word for word in command],
                cwd=WORK, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            report = WORK / f"{name}.ncu-rep"
            if done.returncode or not report.is_file():
                sys.exit(f"{path}: {(done.stdout + done.stderr).strip()[-2000:]}")
            if shown := betrays(report.read_bytes()):
                sys.exit(f"{path}: the report shows {', '.join(shown)} of this machine")
            target = out / f"{path}.ncu-rep"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(report, target)
            print(f"{path}: {target.stat().st_size:,} bytes", flush=True)


def install(out: Path) -> None:
    """Place the reports, compress those of the ladders, and rewrite what quotes them."""
    import zstandard

    for report in sorted(out.glob("**/*.ncu-rep")):
        target = ROOT / report.relative_to(out)
        data = report.read_bytes()
        if target.is_relative_to(ROOT / "kernels"):
            target, data = target.with_suffix(".ncu-repz"), zstandard.ZstdCompressor(level=19).compress(data)
        target.write_bytes(data)
        print(target.relative_to(ROOT))
    subprocess.run([sys.executable, str(ROOT / "scripts" / "write_docs.py")], check=True)


if __name__ == "__main__":
    verb, folder, *names = sys.argv[1:]
    if verb == "record":
        record(Path(folder).resolve(), names or list(GROUPS))
    else:
        install(Path(folder).resolve())
