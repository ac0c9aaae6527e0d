"""Every recorded situation of ncu -> one line, with its remedy."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from profiler import obstacles
from profiler.doctor import Check
from profiler.ncu_command import Request
from profiler.ncu_run import Outcome, _outcome
from profiler.obstacles import obstacle
from profiler.plans import PLANS

DATA = Path(__file__).parent / "data" / "ncu"
ASKED = Request(("./a",), PLANS["quick"], timeout=12.0)
KERNEL = replace(ASKED, kernel="gamma")
RANGE = replace(ASKED, nvtx="x")


def outcome(name: str, code: int | None = 0) -> Outcome:
    out, err = (DATA / f"{name}.{end}" for end in ("out", "err"))
    return _outcome(code, out.read_text(), err.read_text() if err.exists() else "", 1.0)


@pytest.mark.parametrize("name", ["ok", "quick", "badmetric", "child_all", "graph"])
def test_nothing_stood_in_the_way(name: str) -> None:
    assert obstacle(outcome(name), ASKED, report_written=True) is None


def test_what_is_read_of_a_good_run() -> None:
    good = outcome("quick")
    assert good.profiled == ("alpha(float *, int)",)
    assert good.passes == 4
    assert good.said == ("done",)
    assert len(outcome("graph").profiled) == 6
    assert outcome("spin", None).passes is None
    assert outcome("spin_application", None).profiled == ("spin(volatile int *)",)


@pytest.mark.parametrize(
    ("name", "code", "asked", "line"),
    [
        ("nomatch", 0, KERNEL, "no launch was kernel 'gamma'; the program launched alpha, beta"),
        ("nonvtx", 0, RANGE, r"no launch was in NVTX range 'x': a range of push and pop .*process_wide=True"),
        ("nokernels", 0, ASKED, "the program launched no kernel on a GPU"),
        ("nokernels", 0, replace(ASKED, skip=5), "no launch was after 5 others: the program launched none, or fewer"),
        ("fail", 7, ASKED, "the program failed under ncu with exit code 7; it said: boom: bad input / second line; n"),
        ("segv", 11, ASKED, "the program failed under ncu with exit code 11, SIGSEGV if it died of a signal; nothing"),
        ("child_app", 0, ASKED, "a child process launched the kernels"),
        ("spin", None, ASKED, r"the time limit of 12 s \(--timeout\) was up while ncu was profiling spin\(volatile int"
                              r" \*\): kernel replay .*--replay application.*--plan quick"),
        ("spin_application", None, replace(ASKED, replay="application"),
         r"profiling spin\(volatile int \*\): it did not end under application replay"),
        ("nokernels", None, ASKED, "was up before any launch that was asked for: raise it"),
        ("ok", None, ASKED, r"was up after alpha\(float \*, int\) had been profiled, while the program went on"),
        ("missing", 1, ASKED, r"\./a: there is no such program, or it is not executable"),
        ("badout", 1, ASKED, "the report cannot be written: is the folder there"),
        ("option", 1, ASKED, r"this ncu is too old, or too new, .*unrecognised option '--sampling-interval'"),
        ("driver", 11, ASKED, "the driver is not compatible with this ncu: update the driver, or name an older ncu"),
        ("nolibrary", 1, ASKED, r"no driver library that it can use .*NVIDIA_DRIVER_CAPABILITIES=all"),
        ("held", 9, ASKED, "another profiler holds the counters.*dcgmi profile --pause"),
        ("unsupported", 0, ASKED, "this ncu does not know the GPU"),
        ("wsl", 0, ASKED, "ncu does not profile under this WSL"),
    ],
)  # fmt: skip
def test_each_obstacle_is_one_line(name: str, code: int | None, asked: Request, line: str) -> None:
    found = obstacle(outcome(name, code), asked, report_written=name in ("fail", "segv"))
    assert found is not None
    assert found.exit_code == 9
    assert "\n" not in str(found)
    assert re.search(line, str(found)), str(found)


def test_a_collective_gets_the_advice_for_collectives() -> None:
    text = (DATA / "spin.out").read_text().replace("spin(volatile int *)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
    found = obstacle(_outcome(None, text, "", 12.0), ASKED, report_written=False)
    assert "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x): it looks like a collective" in str(found)
    assert "--replay range" in str(found)


@pytest.mark.parametrize(
    ("check", "line"),
    [
        (
            Check(
                "counters", "capturing", "problem", "for administrators only: in a container (Docker)", "start it so"
            ),
            "(ERR_NVGPUCTRPERM): for administrators only: in a container (Docker): start it so",
        ),
        (Check("counters", "capturing", "unknown", "not told"), "run under sudo or as root with SYS_ADMIN"),
    ],
)
def test_permission_says_what_the_doctor_knows(monkeypatch: pytest.MonkeyPatch, check: Check, line: str) -> None:
    monkeypatch.setattr(obstacles, "capturing", lambda system: iter([check]))
    assert line in str(obstacle(outcome("permission"), ASKED, report_written=False))


def test_long_lists_are_cut() -> None:
    kernels = "".join(f"{i}. kernel_{i}\n" for i in range(1, 31))
    said = f"==WARNING== No kernels were profiled.\nAvailable Kernels:\n{kernels}"
    text = str(obstacle(_outcome(0, said, "", 1.0), KERNEL, report_written=False))
    assert "kernel_8 and 22 more" in text
    assert "kernel_9" not in text


def test_no_report_and_no_reason_is_said_as_such() -> None:
    text = str(obstacle(_outcome(-9, "==PROF== Connected to process 1\n", "", 1.0), ASKED, report_written=False))
    assert text == "ncu left no whole report (it did not say why); ncu died of SIGKILL"


def test_the_program_may_leave_its_own_line_unfinished() -> None:
    found = _outcome(0, 'half a line==PROF== Profiling "k" - 0: 0%....100% - 2 passes\n', "", 1.0)
    assert found.profiled == ("k",)
    assert found.passes == 2
    assert found.said == ("half a line",)
