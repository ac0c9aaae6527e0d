"""``cyinst profile`` on a GPU, with the real ncu: two rungs, a wrong filter, a failing program, a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import ROOT, validate

pytestmark = pytest.mark.gpu
SMALL = "300x512x1024x210"
LAUNCH = "import cupy; x = cupy.arange(1 << 20, dtype='float32'); y = x * 2 + 1; cupy.cuda.Device().synchronize()"


def profile(folder: Path, *args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "profiler.cli", "profile", "-o", str(folder), *args]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def document(folder: Path, *args: str) -> Any:
    done = profile(folder, "--format", "json", *args)
    assert done.returncode == 0, done.stderr
    validate(json.loads(done.stdout))
    return json.loads(done.stdout)


def test_two_rungs(tmp_path: Path) -> None:
    found = document(tmp_path, "q6k:3,4", "--shape", SMALL)
    assert len(found["captures"]) == 2
    (comparison,) = found["comparisons"]
    assert comparison["refusals"] == []
    assert comparison["terms"]
    for one, variant in zip(found["captures"], ("3_", "4_"), strict=True):
        (launch,) = one["report"]["launches"]
        sidecar = one["report"]["capture"]
        assert sidecar["subject"]["variant"].startswith(variant)
        assert launch["kernel"] in sidecar["subject"]["kernels"]
        assert sidecar["not_collected"] == []
        assert sidecar["passes"] == launch["passes"]
        assert launch["macs"] == 300 * 512 * 1024
        assert launch["sampled_states"]
        assert launch["opcodes"]
        assert {r["domain"] for r in launch["nvtx"]} >= {"cyinst"}
        assert sidecar["before"] is None or sidecar["before"]["sm_mhz"] > 0
    assert len(list(tmp_path.glob("*.ncu-rep"))) == len(list(tmp_path.glob("*.cyinst.json"))) == 2


def test_books_are_complete(tmp_path: Path) -> None:
    (one,) = document(tmp_path, "q6k:4", "--shape", SMALL, "--plan", "books")["captures"]
    (launch,) = one["report"]["launches"]
    assert one["report"]["capture"]["not_collected"] == []
    assert launch["states"]
    assert launch["eligible_warps_per_scheduler"] is not None
    assert all(launch[f"{unit}_throughput_pct"] is not None for unit in ("sm", "l1tex", "l2", "dram"))


def test_a_program_by_range(tmp_path: Path) -> None:
    code = (
        f"import profiler\n{LAUNCH}\nwith profiler.annotate('step'):\n    z = y + x\ncupy.cuda.Device().synchronize()"
    )
    (one,) = document(tmp_path, "--nvtx", "step", "--", sys.executable, "-c", code)["captures"]
    (launch,) = one["report"]["launches"]
    assert {"domain": "cyinst", "name": "step", "kind": "push_pop"} in launch["nvtx"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("--kernel", "no_such_kernel", "--", sys.executable, "-c", LAUNCH), "no launch was kernel 'no_such_kernel'"),
        (("--nvtx", "no_such_range", "--", sys.executable, "-c", LAUNCH), "no launch was in NVTX range"),
        (("--", sys.executable, "-c", f"{LAUNCH}; raise SystemExit('boom')"), "with exit code 1; it said: boom"),
        (("--", sys.executable, "-c", "pass"), "the program launched no kernel on a GPU"),
        (
            ("--timeout", "45", "--", sys.executable, "-c", f"{LAUNCH}; import time; time.sleep(200)"),
            "while the program",
        ),
    ],
    ids="kernel range fails none slow".split(),
)
def test_obstacles(tmp_path: Path, args: tuple[str, ...], line: str) -> None:
    done = profile(tmp_path / "new", *args)
    assert done.returncode == 9, done.stdout + done.stderr
    assert line in done.stderr
    assert not (tmp_path / "new").exists()
