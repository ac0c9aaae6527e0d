"""A stand-in for ncu: says what it is told to, leaves the report it is told to, and ends, or does not.

``FAKE_NCU`` holds JSON: ``said`` (a name in tests/data/ncu), ``code``, ``report`` (a file to leave, by sampling
interval where it is an object), ``half`` (leave the first half of it and die), ``hang`` (seconds to sleep, with a child
that sleeps too), ``stubborn`` (ignore SIGTERM), ``kernels`` (what cyinst launch would say of its launch), ``log`` (a
file that gets the command lines and process numbers).
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DATA = Path(__file__).parent / "data" / "ncu"


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main():
    if "--version" in sys.argv:
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1) (public-release)")
        return 0
    told = json.loads(os.environ["FAKE_NCU"])
    note = {"argv": sys.argv[1:], "pid": os.getpid()}
    if told.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "hang" in told:
        note["child"] = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({told['hang']})"]).pid
    if "log" in told:
        with open(told["log"], "a") as log:
            log.write(json.dumps(note) + "\n")
    said = DATA / f"{told.get('said', 'ok')}.out"
    sys.stdout.write(said.read_text())
    sys.stdout.flush()
    if said.with_suffix(".err").exists():
        sys.stderr.write(said.with_suffix(".err").read_text())
    if told.get("kernels"):
        Path(os.environ["CYINST_LAUNCH_FACTS"]).write_text(json.dumps({"kernels": told["kernels"]}))
    report = told.get("report")
    if isinstance(report, dict):
        report = report[option("--warp-sampling-interval", "auto")]
    if report:
        data = Path(report).read_bytes()
        target = Path(option("--export").replace("%%", "%") + ".ncu-rep")
        target.write_bytes(data[: len(data) // 2] if told.get("half") else data)
    if told.get("half"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in told:
        time.sleep(told["hang"])
    return told.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
