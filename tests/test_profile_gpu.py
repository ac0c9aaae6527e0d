"""``cyinst profile`` on a GPU, with the real ncu: two rungs, obstacles, and from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
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


def script(folder: Path, text: str, *, session: bool = False) -> str:
    """Run a script, or its text at a session's standard input, and return what it printed."""
    (folder / "script.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-" if session else "script.py"], cwd=folder, env=environment,
        input=text if session else "", capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BLOCKS = """
import cupy, profiler
axpy = cupy.ElementwiseKernel("float32 a, float32 x, float32 y", "float32 z", "z = a * x + y", "my_axpy")
x = cupy.arange(1 << 22, dtype="float32")
y = cupy.ones_like(x)
axpy(2, x, y)
for times in range(1, 3):
    with profiler.capture("step", work=profiler.Work(x.size), samples=0) as c:
        for _ in range(times):
            z = axpy(times, x, y)
    print(c.launch.kernel, c.account.duration_ns > 0, c.account.per_work.work.macs == x.size, float(z[3]))
    print([(r.domain, r.name) for r in c.launch.nvtx], c.path.is_file(), c.sidecar.not_collected)
try:
    with profiler.capture("nothing"):
        pass
except profiler.CyinstError as error:
    print(error)
"""


def test_a_script_captures_its_blocks(tmp_path: Path) -> None:
    lines = script(tmp_path, BLOCKS).splitlines()
    ranges = "[('cyinst', 'step')] True ()"
    assert lines[:4] == ["my_axpy True True 4.0", ranges, "my_axpy True True 7.0", ranges]
    assert lines[4].startswith("capture('nothing'): it ran under ncu, and no launch was in NVTX range")
    assert len(list((tmp_path / "cyinst-captures").glob("*.ncu-rep"))) == 2


BACKWARD = """
import threading, cupy, profiler
x = cupy.arange(1 << 20, dtype="float32")
def work():
    with cupy.cuda.Device(0):
        cupy.sqrt(x)
work()
with profiler.capture("step", process_wide=True) as c:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(c.launch.kernel)
"""


def test_launches_of_other_threads(tmp_path: Path) -> None:
    assert "sqrt" in script(tmp_path, BACKWARD)


def test_a_session_captures_a_function(tmp_path: Path) -> None:
    text = (
        "import operator, cupy, profiler\nx = cupy.ones(1 << 20, dtype='float32')\n"
        "c = profiler.profile(operator.mul, x, 3, work=profiler.Work(1 << 20))\n"
        "print(c.launch.kernel, c.account.duration_ns > 0, [r.name for r in c.launch.nvtx])"
    )
    words = script(tmp_path, text, session=True).split()
    assert words[0].startswith("cupy_multiply")
    assert words[1:] == ["True", "['mul']"]


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_pytorch_product(tmp_path: Path) -> None:
    text = (
        "import torch, profiler\na = torch.randn(1024, 1024, device='cuda', dtype=torch.bfloat16)\n"
        "c = profiler.profile(torch.matmul, a, a, work=(1024, 1024, 1024), plan='books')\n"
        "print(c.account.per_work.work.label, c.account.duration_ns > 0, c.sidecar.plan, c.launch.nvtx[-1].name)"
    )
    assert script(tmp_path, text) == "1024 x 1024 x 1024 True books matmul\n"
