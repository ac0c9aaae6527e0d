"""``cyinst profile``: from the command line to the books, with a stand-in for ncu."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import BYTE, CAPTURES, ROOT, WIDE, Outcome, validate, widest
from host_bench import PLANTED
from test_capture import QUICK
from test_capture import ncu as ncu
from test_doctor import HEALTHY, failed

from profiler import preflight as checks
from profiler import session
from profiler.errors import CaptureError, MissingToolError
from profiler.targets import program_target, specimen_targets

Run = Callable[..., Outcome]


@pytest.fixture
def profile(run: Run, ncu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """``profile(told, *args)`` runs the command with a stand-in that does what it is told, on a machine without doubt.

    The recorded launches were in no range of a specimen's: those targets lose theirs.
    """
    monkeypatch.setattr(session.checks, "preflight", lambda path: [])
    plain = session.specimen_targets
    monkeypatch.setattr(session, "specimen_targets", lambda *a, **k: [replace(t, nvtx=None) for t in plain(*a, **k)])

    def call(told: dict[str, Any], *args: str | Path) -> Outcome:
        monkeypatch.setenv("FAKE_NCU", json.dumps(told))
        return run("profile", "--ncu", ncu, "-o", tmp_path / "out", *args)

    return call


def told(report: Path, said: str = "quick", **more: Any) -> dict[str, Any]:
    return {"said": said, "report": str(report), **more}


def test_a_program_ends_in_its_books(profile: Callable[..., Outcome], run: Run, tmp_path: Path) -> None:
    done = profile(told(QUICK), "--", "python3", "train.py", "--plan", "x")
    assert (done.code, done.err) == (0, "")
    assert widest(done.out) <= 80
    lines = done.out.splitlines()
    assert lines[0] == "alpha(float *, int)"
    assert lines[1].strip().startswith("plan quick: 4 passes in ")
    assert "the card before and after: unknown" in done.out
    (report,) = (tmp_path / "out").glob("*.ncu-rep")
    assert report.name.endswith("-train.ncu-rep")
    assert "Warp Cycles Per Issued Instruction 117.47 (counted), split by 30,895 samples" in done.out
    document = json.loads(report.with_name(report.name.replace(".ncu-rep", ".cyinst.json")).read_text())
    assert document["program"] == ["python3", "train.py", "--plan", "x"]
    # What is kept tells report what it told profile.
    assert run("report", report).out.splitlines()[:2] == lines[:2]


def test_variants_end_in_their_comparison(profile: Callable[..., Outcome], run: Run, tmp_path: Path) -> None:
    done = profile(told(BYTE, said="ok", kernels=["mmq_q6k", "fix_up"]), "q6k:3,4", "--shape", "64x128x256x210")
    assert (done.code, done.err) == (0, "")
    assert "q6k:3_three_blocks  tokens=64 rows=128 k=256 pitch=210" in done.out
    assert "q6k:4_wide_loads  tokens=64 rows=128 k=256 pitch=210" in done.out
    assert done.out.count("kernel mmq_q6k, one of the 2 of a launch: mmq_q6k, fix_up") == 2
    assert done.out.count("Of 100 issue slots") == 2
    assert "The change, factor by factor" in done.out
    assert " 0.002097 GMAC" in done.out
    report = next((tmp_path / "out").glob("*q6k.4_wide_loads.ncu-rep"))
    # Its declared work is known from the sidecar; options are stronger.
    launch = run("report", report, "--format", "json").document["launches"][0]
    assert launch["macs"] == 64 * 128 * 256
    assert run("report", report, "--macs", "5e6", "--format", "json").document["launches"][0]["macs"] == 5e6
    document = profile(told(BYTE, said="ok"), "q6k:3,4,5", "--shape", "64x128x256x210", "--format", "json").document
    validate(document)
    assert [c["before_ns"] for c in document["comparisons"]] == [2246368, 2246368]
    per_work = run("compare", report, report, "--per-work", "--format", "json").document
    assert per_work["before_ns"] == pytest.approx(2246368 / (64 * 128 * 256 / 1e9))


def test_the_document_is_the_contract(profile: Callable[..., Outcome]) -> None:
    done = profile(
        told(QUICK),
        f"{PLANTED}:1_good",
        "--format",
        "json",
        "--metrics",
        "launch__grid_size,gpu__time_duration,no__such.sum",
    )
    assert (done.code, done.err) == (0, "")
    validate(done.document)
    (one,) = done.document["captures"]
    assert one["metrics"]["launch__grid_size"] == 528
    assert one["metrics"]["gpu__time_duration.max"] == 250912
    assert one["report"]["capture"]["not_collected"] == ["no__such.sum"]
    assert one["report"]["capture"]["subject"]["specimen"] == "planted"
    assert done.document["comparisons"] == []
    states = one["report"]["launches"][0]["sampled_states"]
    latency = one["report"]["launches"][0]["warp_cycles_per_issued_instruction"]
    assert sum(x["cycles"] for x in states.values()) == pytest.approx(latency)


def test_hot_follows_the_books(profile: Callable[..., Outcome]) -> None:
    done = profile(told(WIDE, said="ok"), "--hot", "--", "./a")
    assert done.code == 0
    assert "Causes: producer -> where it is waited for" in done.out
    assert profile(told(WIDE), "--hot", "--format", "json", "--", "./a").code == 2


def test_metrics_that_were_asked_for_are_shown(profile: Callable[..., Outcome]) -> None:
    done = profile(told(QUICK), "--metrics", "launch__grid_size no__such.sum", "--", "./a")
    assert "launch__grid_size 528" in done.out
    assert "asked for, but not collected by this ncu on this GPU: no__such.sum" in done.out


def test_few_samples_are_said_and_nothing_is_concluded_from_them(profile: Callable[..., Outcome]) -> None:
    done = profile(told(CAPTURES / "samples_only.sm90.ncu-rep", said="ok"), "--samples", "0", "--", "./a")
    assert "only" not in done.out
    done = profile(told(CAPTURES / "samples_only.sm90.ncu-rep", said="ok"), "--samples", "1000000", "--", "./a")
    assert "sampled one per" in done.out
    assert "samples: shares are uncertain by up to 1.2 points" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("told_", "args", "code", "line"),
    [
        ({"said": "nomatch"}, ("--kernel", "gamma", "--", "./a"), 9, "the program launched alpha, beta"),
        ({"said": "fail", "code": 7}, ("--", "./a"), 9, "with exit code 7; it said: boom: bad input / second line"),
        ({"said": "spin", "hang": 60}, ("--timeout", "1", "--", "./a"), 9, "1 s (--timeout) was up while ncu was pro"),
        ({}, ("--", "./a", "--help"), 9, "ncu left no whole report"),
        ({}, (), 2, "profile takes a specimen (SPEC:VARIANT), or after -- a program"),
        ({}, ("q6k:1", "--", "./a"), 2, "profile takes a specimen (SPEC:VARIANT), or after -- a program"),
        ({}, ("--",), 2, "after -- comes the program"),
        ({}, ("--shape", "64", "--", "./a"), 2, "--shape is that of a specimen"),
        ({}, ("q6k:1", "--nvtx", "x"), 2, "--nvtx: a specimen's launch has a range of its own"),
        ({}, ("q6k:nothing",), 5, "q6k: no variant is called 'nothing'"),
        ({}, ("no_such_spec",), 5, "bundled are"),
        ({}, ("--plan", "all", "--", "./a"), 5, "there is no plan 'all'; there are quick, books, full"),
        ({}, ("--kernel", "(", "--", "./a"), 2, "--kernel '(' is not a regular expression"),
        ({}, ("q6k:1,2", "-o", "one.ncu-rep"), 2, "--output one.ncu-rep: 2 launches need a folder, not one file"),
    ],
)
def test_failures_are_one_line_and_leave_no_folder(
    profile: Callable[..., Outcome], tmp_path: Path, told_: dict[str, Any], args: tuple[str, ...], code: int, line: str
) -> None:
    done = profile(told_, *args)
    assert done.code == code
    assert done.err.count("\n") == 1
    assert line in done.err
    assert done.out == ""
    assert not (tmp_path / "out").exists()


def test_a_sidecar_of_another_report_is_told_and_left_out(
    profile: Callable[..., Outcome], run: Run, tmp_path: Path
) -> None:
    profile(told(QUICK), f"{PLANTED}:1_good")
    (report,) = (tmp_path / "out").glob("*.ncu-rep")
    report.write_bytes(WIDE.read_bytes())
    done = run("report", report, "--format", "json")
    assert done.code == 0
    assert "describes another report" in done.err
    assert done.document["capture"] is None


def test_a_dry_run_needs_neither_gpu_nor_ncu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_ncu", lambda system: (None, False))
    done = run("profile", "--dry-run", "q6k:4", "--plan", "books", "-o", "x", "--kernel", "mm.q", "--skip", "1")
    assert (done.code, done.err) == (0, "")
    words = shlex.split(done.out)
    assert words[0] == "ncu"
    assert words[words.index("--nvtx-include") + 1] == "cyinst@q6k.4_wide_loads/"
    assert words[words.index("--kernel-name") + 1] == "regex:mm.q"
    at = words.index(sys.executable)
    assert words[at : at + 4] == [sys.executable, "-m", "profiler.cli", "launch"]
    assert words[at + 4].endswith("q6k:4_wide_loads")
    assert words[at + 5 : at + 7] == ["--shape", "tokens=2630,rows=3584,k=3584,pitch=224"]
    assert run("profile", "--dry-run", "--", "./a", "-x").out.endswith(" ./a -x\n")
    assert not Path("x").exists()


def test_the_launch_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = specimen_targets(f"{PLANTED}:1_good")
    assert target.kernel is None
    assert target.nvtx == "cyinst@planted.1_good/"
    # A promised kernel is the one to take, unless another is asked for.
    from profiler import targets

    plain = targets.resolve

    def with_promise(text: str) -> Any:
        chosen = plain(text)
        variants = [replace(x, path=lambda shape: "mma.1") for x in chosen.specimen.variants]
        monkeypatch.setattr(chosen.specimen, "variants", variants)
        return chosen

    monkeypatch.setattr(targets, "resolve", with_promise)
    assert specimen_targets(f"{PLANTED}:1_good")[0].kernel == r"^mma\.1$"
    assert specimen_targets(f"{PLANTED}:1_good", kernel="other")[0].kernel == "other"


def test_labels_of_programs() -> None:
    assert program_target(["/usr/bin/python3.12", "-u", "x/train.py", "a.py"]).label == "train"
    assert program_target(["python", "-c", "print()"]).label == "python"
    assert program_target(["./my bin"]).label == "my_bin"


def test_names_do_not_collide(tmp_path: Path) -> None:
    from datetime import datetime

    two = [program_target(["./a"]), program_target(["./a"])]
    now = datetime(2026, 1, 2, 3, 4, 5)
    places = session.destinations(two, session.Options(output=str(tmp_path)), now)
    assert [p.name for p in places] == ["20260102-030405-a.ncu-rep", "20260102-030405-a-2.ncu-rep"]
    places[0].touch()
    assert session.destinations(two[:1], session.Options(output=str(tmp_path)), now)[0].name.endswith("-a-2.ncu-rep")


NCU = HEALTHY.programs["ncu"]
NO_GPU = replace(
    HEALTHY, programs={"ncu": NCU}, files={k: x for k, x in HEALTHY.files.items() if "nvidia" not in k},
    answers={k: x for k, x in HEALTHY.answers.items() if "nvidia" not in k},
)  # fmt: skip
LOCKED = replace(HEALTHY, files={**HEALTHY.files, "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n"})


def test_preflight() -> None:
    assert checks.preflight(NCU, HEALTHY) == []
    assert checks.locate(None, HEALTHY) == NCU
    assert checks.locate("./mine", HEALTHY) == "./mine"
    with pytest.raises(MissingToolError, match=r"there is no NVIDIA GPU to profile on: .*--dry-run"):
        checks.preflight(NCU, NO_GPU)
    with pytest.raises(MissingToolError, match="does not answer as Nsight Compute"):
        checks.preflight(NCU, replace(HEALTHY, answers={**HEALTHY.answers, NCU: failed(0, "npm-check-updates")}))
    with pytest.raises(MissingToolError, match="not found on PATH"):
        checks.locate(None, replace(HEALTHY, programs={}, answers={}))
    with pytest.raises(CaptureError, match=r"the counters are for administrators only .*: run under sudo"):
        checks.preflight(NCU, LOCKED)
    busy = replace(HEALTHY, files={**HEALTHY.files, "/proc/7/comm": "nv-hostengine\n"})
    assert checks.preflight(NCU, busy)[0].startswith("other profilers: nv-hostengine running: may hold the counters; ")


def test_here_without_a_gpu_it_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, ncu: str) -> None:
    plain = checks.preflight
    monkeypatch.setattr(session.checks, "preflight", lambda path: plain(path, NO_GPU))
    done = run("profile", "--ncu", NCU, "q6k:4")
    assert done.code == 6
    assert done.err.startswith("cyinst: there is no NVIDIA GPU to profile on")
    assert done.err.count("\n") == 1


def test_nothing_heavy_is_imported_for_a_dry_run() -> None:
    script = (
        "import sys\nfrom profiler import cli\n"
        "sys.argv = ['cyinst', 'profile', '--dry-run', '--ncu', 'ncu', '--', 'a']\ncli.main()\n"
    )
    check = "print(sorted({'numpy', 'pandas', 'rich', 'cupy', 'nvtx', 'ncu_report', 'pynvml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script + check], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
