"""A stand-in for ncu: says what it is told to, leaves the report it is told to, and ends, or does not.

``FAKE_NCU`` holds JSON: ``said`` (a name in tests/data/ncu), ``code``, ``report`` (a file to leave, by sampling
interval where it is an object), ``half`` (leave the first half of it and die), ``hang`` (seconds to sleep, with a child
that sleeps too), ``stubborn`` (ignore SIGTERM), ``kernels`` (what cyinst launch would say of its launch), ``log`` (a
file that gets the command lines and process numbers), ``replay`` (really run the program, a Python one on tests/stage,
and leave the report of the range of its first launch that matches: {range name: file}).
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

DATA = Path(__file__).parent / "data" / "ncu"


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def replay(reports):
    log = Path(os.environ["STAGE_LOG"])
    seen = len(log.read_text().splitlines()) if log.exists() else 0
    words = sys.argv[sys.argv.index(sys.executable) :]
    sys.stdout.write("==PROF== Connected to process 1000\n")
    sys.stdout.flush()
    # To the end of the pipe: ncu waits for the children of the program as well.
    environment = {**os.environ, "NV_NSIGHT_INJECTION_PORT_BASE": "49152"}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    code = done.returncode
    sys.stdout.write(done.stdout)
    wanted = {value for name, value in itertools.pairwise(sys.argv) if name == "--nvtx-include"}
    pattern = option("--kernel-name", "regex:").removeprefix("regex:")
    ran = [json.loads(line) for line in log.read_text().splitlines()[seen:]] if log.exists() else []
    found = [
        (note["launch"], sorted(wanted & set(note["ranges"]))[0])
        for note in ran
        if "launch" in note and wanted & set(note["ranges"]) and re.search(pattern, note["launch"])
    ][int(option("--launch-skip", "0")) :]
    for kernel, name in found[:1]:
        sys.stdout.write(f'==PROF== Profiling "{kernel}" - 0 (1/1): 0%....50%....100% - 4 passes\n')
        export(Path(reports[name.partition("@")[2].rstrip("/")]).read_bytes())
    sys.stdout.write("==PROF== Disconnected from process 1000\n")
    if code:
        sys.stdout.write(f"==ERROR== The application returned an error code ({code}).\n")
    elif not found:
        sys.stdout.write("==WARNING== No kernels were profiled.\n")
    return code


def export(data):
    Path(option("--export").replace("%%", "%") + ".ncu-rep").write_bytes(data)


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
    if "replay" in told:
        return replay(told["replay"])
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
        export(data[: len(data) // 2] if told.get("half") else data)
    if told.get("half"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in told:
        time.sleep(told["hang"])
    return told.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
