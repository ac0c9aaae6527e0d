"""What each plan of ``cyinst profile`` costs, and how well sampled states agree with counted ones; a Markdown table.

    python benchmarks/gpu/plan_cost.py

A short, a medium and a long launch of one kernel (plan_cost.cu), each captured under every plan. Seconds are those of
ncu, the program's own start included; the program alone is the row ``none``. Agreement: the state whose share of
Warp Cycles Per Issued Instruction differs most between ``quick`` (sampled) and ``books`` (counted), in points.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Turns of the kernel's loop that take about 20 us, 0.7 ms and 50 ms on an H200.
LENGTHS = {"short": 31, "medium": 1540, "long": 113_000}
PLANS = ("quick", "books", "full")


def capture(folder: Path, plan: str, turns: int) -> dict[str, Any]:
    """Return the document of one capture."""
    words = [sys.executable, "-m", "profiler.cli", "profile", "--plan", plan, "--kernel", "^mixed$", "--skip", "1"]
    words += ["--format", "json", "--force", "-o", str(folder), "--", str(folder / "plan_cost"), str(turns)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    found: dict[str, Any] = json.loads(done.stdout)["captures"][0]["report"]
    return found


def shares(launch: dict[str, Any], kind: str) -> dict[str, float]:
    """Return the states' shares in per cent, of the counted or of the sampled kind."""
    states = {k: v["cycles"] if isinstance(v, dict) else v for k, v in (launch[kind] or {}).items()}
    total = sum(states.values())
    return {state: 100 * cycles / total for state, cycles in states.items()} if total else {}


def main() -> None:
    """Build, capture, print."""
    print("| kernel | plan | passes | seconds | duration, us | samples | largest difference to `books` |")
    print("|---|---|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [
            "nvcc",
            "-O3",
            "-lineinfo",
            "-arch=native",
            "-o",
            str(folder / "plan_cost"),
            str(HERE / "plan_cost.cu"),
        ]
        subprocess.run(words, check=True)
        for label, turns in LENGTHS.items():
            start = time.monotonic()
            subprocess.run([str(folder / "plan_cost"), str(turns)], check=True)
            print(f"| {label} | none | | {time.monotonic() - start:.1f} | | | |")
            found = {plan: capture(folder, plan, turns) for plan in PLANS}
            counted = shares(found["books"]["launches"][0], "states")
            for plan, report in found.items():
                launch, sidecar = report["launches"][0], report["capture"]
                sampled = shares(launch, "sampled_states")
                apart = {s: abs(sampled.get(s, 0.0) - counted.get(s, 0.0)) for s in {*sampled, *counted}}
                worst = max(apart, key=lambda s: apart[s]) if sampled else ""
                samples = launch["samples"]["total"] if launch.get("samples") else "none"
                said = f"{apart[worst]:.1f} points ({worst})" if worst else "too few samples"
                print(
                    f"| {label} | {plan} | {sidecar['passes'] or 'not known'} | {sidecar['seconds']:.1f} "
                    f"| {launch['duration_ns'] / 1e3:.1f} | {samples} | {said} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
