"""Run ``cyinst profile`` on every kind of program and into every obstacle that can be staged; print docs/transcript.md.

    python scripts/record_transcript.py OUT.md

Needs a GPU with ncu, nvcc, CuPy, PyTorch and Triton. Works in a neutral folder, so that no path of the machine shows.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from profiler import __version__

ROOT = Path(__file__).resolve().parent.parent
WORK = Path("/tmp/cyinst")
# (what it shows, the command as a person types it, variables of its environment)
STEPS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Two rungs of the q6_K ladder", "cyinst profile kernels/q6k:3_three_blocks,4_wide_loads", {}),
    ("PyTorch: a matrix product", "cyinst profile --nvtx matmul -- python torch_steps.py", {}),
    ("PyTorch: softmax", "cyinst profile --nvtx softmax -- python torch_steps.py", {}),
    ("PyTorch: attention", "cyinst profile --nvtx attention -- python torch_steps.py", {}),
    ("A Triton kernel", "cyinst profile --kernel add_kernel --skip 1 -- python triton_add.py", {}),
    ("A CuPy ElementwiseKernel", "cyinst profile --kernel scale_and_square --skip 1 -- python cupy_scale.py", {}),
    ("A plain CUDA binary", "cyinst profile --skip 1 -- ./plan_cost 560", {}),
    ("A filter that matches nothing", "cyinst profile --kernel no_such_kernel -- ./plan_cost 560", {}),
    ("A range that nothing opened", "cyinst profile --nvtx no_such_range -- python torch_steps.py", {}),
    ("A program that fails", "cyinst profile -- ./obstacles fail", {}),
    ("No GPU", "cyinst profile -- ./obstacles tiny", {"CUDA_VISIBLE_DEVICES": "-1"}),
    ("A child process launches the kernel", "cyinst profile --plan quick -- ./obstacles child", {}),
    (
        "A kernel that hangs when it is run again",
        "cyinst profile --kernel wait_for --timeout 15 -- ./obstacles spin",
        {},
    ),
)


def stage() -> dict[str, str]:
    """Build in the neutral folder; return the environment of the commands."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(ROOT / "kernels", WORK / "kernels", ignore=shutil.ignore_patterns("captures", "__pycache__"))
    for source in (ROOT / "benchmarks" / "gpu" / "programs").iterdir():
        if source.is_file():
            shutil.copy(source, WORK)
    shutil.copy(ROOT / "benchmarks" / "gpu" / "plan_cost.cu", WORK)
    for name in ("plan_cost", "obstacles"):
        words = ["nvcc", "-O3", "-lineinfo", "-arch=native", "-o", name, f"{name}.cu"]
        subprocess.run(words, cwd=WORK, check=True)
    return {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def run(command: str, environment: dict[str, str]) -> str:
    """Return what a command prints, and its exit code where that is not 0."""
    words = shlex.split(command)
    words[:1] = [sys.executable, "-m", "profiler.cli"]
    words = [sys.executable if word == "python" else word for word in words]
    done = subprocess.run(words, cwd=WORK, env=environment, capture_output=True, check=False)
    text = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).decode().rstrip().splitlines())
    return text + (f"\n(exit code {done.returncode})" if done.returncode else "")


def main(out: Path) -> None:
    """Write the document, a step at a time, so that a cut leaves what was run."""
    environment = stage()
    names = "name,driver_version"
    card = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]
    gpu = subprocess.run(card, capture_output=True, text=True, check=True).stdout.strip()
    ncu = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    lines = [
        "# A transcript of cyinst profile",
        "",
        f"Written by `python scripts/record_transcript.py` on {gpu.replace(', ', ', driver ')}; ncu {ncu.strip()}.",
        "The programs are in [benchmarks/gpu](../benchmarks/gpu). Outputs are whole, at 100 columns; they say what",
        f"cyinst {__version__} said on {datetime.now(UTC):%Y-%m-%d}, and wording may have changed since.",
        "",
    ]
    for title, command, extra in STEPS:
        shown = " ".join([*(f"{k}={v}" for k, v in extra.items()), command])
        lines += [f"## {title}", "", "```text", f"$ {shown}", run(command, {**environment, **extra}), "```", ""]
        out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
