"""Capturing with a stand-in for ncu: what is kept, what is refused, and that nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import CAPTURES, ROOT, WIDE, validate

from profiler import nvml, sidecar
from profiler.books import fills_buffer
from profiler.capture import capture, verified
from profiler.errors import CaptureError, MissingToolError, ReportError, UsageError
from profiler.model import Work
from profiler.ncu_command import Request
from profiler.ncu_parse import load
from profiler.plans import PLANS
from profiler.sampling import best, next_interval, told
from profiler.sidecar import Subject, Try
from profiler.vocabulary import WarpState

QUICK = Path(__file__).parent / "data" / "quick.sm90.ncu-rep"
ASKED = Request(("./a",), PLANS["quick"], timeout=60.0)
SUBJECT = Subject("q6k", "4_wide", "wide loads", {"tokens": 2630, "k": 3584}, "kernels/q6k", git="ab" * 20, dirty=True)


@pytest.fixture
def ncu(tmp_path: Path) -> str:
    place = tmp_path / "bin" / "ncu"
    place.parent.mkdir()
    place.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests" / "fake_ncu.py"}" "$@"\n')
    place.chmod(0o755)
    return str(place)


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Tell the stand-in what to do; returns the file in which it notes its calls."""

    def set_up(**told: Any) -> Path:
        log = tmp_path / "calls"
        plain = {k: str(x) if isinstance(x, Path) else x for k, x in told.items()}
        monkeypatch.setenv("FAKE_NCU", json.dumps({"log": str(log), **plain}))
        return log

    return set_up


def notes(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_report_comes_with_its_sidecar(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    log = tell(said="quick", report=QUICK, kernels=["alpha", "beta"])
    place = tmp_path / "new" / "deep" / "step.ncu-rep"
    heard: list[str] = []
    found = capture(
        ASKED, ncu, place, subject=SUBJECT, work=Work(33.78e9, "gemm"), environment={"X": "1"}, progress=heard.append
    )
    assert left(place.parent) == ["step.cyinst.json", "step.ncu-rep"]
    assert place.read_bytes() == QUICK.read_bytes()
    assert found.report.path == str(place)
    assert found.launch.kernel == "alpha"
    assert any("Profiling" in text for text in heard)
    assert len(notes(log)) == 1
    document = json.loads((place.parent / "step.cyinst.json").read_text())
    validate(document)
    assert document["command"][3] == str(place).removesuffix(".ncu-rep")
    assert (document["passes"], document["plan"], document["ncu"]) == (4, "quick", "2025.3.1.0")
    assert document["subject"]["kernels"] == ["alpha", "beta"]
    assert document["tries"] == [
        {"interval": None, "cycles": 2048.0, "samples": 30895, "dropped_bytes": 0, "buffer_full": False}
    ]
    assert len(document["cubin"]) == 64
    again = sidecar.read(place)
    assert again == found.sidecar
    assert again is not None
    assert again.work == Work(33.78e9, "gemm")


def test_a_sidecar_belongs_to_one_report(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    tell(said="quick", report=QUICK)
    place = tmp_path / "step.ncu-rep"
    capture(ASKED, ncu, place)
    place.write_bytes(WIDE.read_bytes())
    with pytest.raises(ReportError, match=r"describes another report than step\.ncu-rep"):
        sidecar.read(place)
    sidecar.place(place).write_text('{"schema": "cyinst.capture/1"}')
    with pytest.raises(ReportError, match=r"is no cyinst\.capture/1 document"):
        sidecar.read(place)
    sidecar.place(place).unlink()
    assert sidecar.read(place) is None


@pytest.mark.parametrize(
    ("told_", "asked", "line"),
    [
        ({"said": "fail", "code": 7, "report": QUICK}, ASKED, "failed under ncu with exit code 7.*boom: bad input"),
        ({"said": "nomatch"}, replace(ASKED, kernel="gamma"), "the program launched alpha, beta"),
        ({"said": "ok", "report": WIDE}, replace(ASKED, kernel="alpha"), "'alpha' was asked .* holds mmq_q6k"),
        (
            {"said": "ok", "report": QUICK}, replace(ASKED, nvtx="cyinst@q6k.4/"),
            "in NVTX range 'cyinst@q6k.4/' was asked for, and alpha was in no range",
        ),
        ({"said": "ok", "report": CAPTURES / "kinds.sm90.ncu-rep"}, ASKED, "report holds 6: saxpy, widths"),
        ({"said": "ok", "report": CAPTURES / "range_replay.sm90.ncu-rep"}, ASKED, "a kernel was asked for.* a range"),
        ({"said": "ok", "report": QUICK, "half": True}, ASKED, "ncu left no whole report.*; ncu died of SIGKILL"),
        ({"said": "ok"}, ASKED, "ncu left no whole report"),
    ],
    ids="failed nomatch kernel range six wholerange half none".split(),
)  # fmt: skip
def test_what_is_not_the_launch_asked_for_leaves_nothing(
    ncu: str, tell: Callable[..., Path], tmp_path: Path, told_: dict[str, Any], asked: Request, line: str
) -> None:
    tell(**told_)
    with pytest.raises(CaptureError, match=line) as raised:
        capture(asked, ncu, tmp_path / "new" / "deep" / "step.ncu-rep")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "new").exists()


def test_a_report_that_is_there_stays_when_a_capture_fails(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    place = tmp_path / "r" / "step.ncu-rep"
    tell(said="quick", report=QUICK)
    capture(ASKED, ncu, place)
    with pytest.raises(UsageError, match="exists: choose another --output, or replace it with --force"):
        capture(ASKED, ncu, place)
    tell(said="fail", code=7, report=WIDE)
    with pytest.raises(CaptureError):
        capture(ASKED, ncu, place, force=True)
    assert sidecar.read(place) is not None
    tell(said="ok", report=WIDE)
    assert capture(ASKED, ncu, place, force=True).launch.kernel == "mmq_q6k"
    assert left(place.parent) == ["step.cyinst.json", "step.ncu-rep"]


def test_bad_places_and_a_missing_ncu(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    tell(said="ok", report=QUICK)
    with pytest.raises(UsageError, match=r"a report's name ends in \.ncu-rep"):
        capture(ASKED, ncu, tmp_path / "step.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        capture(ASKED, ncu, tmp_path / "file" / "step.ncu-rep")
    with pytest.raises(MissingToolError, match="cannot be started"):
        capture(ASKED, str(tmp_path / "nothing"), tmp_path / "step.ncu-rep")
    assert left(tmp_path) == ["bin", "file"]


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_hang_is_ended_with_all_that_was_started(
    ncu: str, tell: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    from profiler import ncu_run

    monkeypatch.setattr(ncu_run, "GRACE_SECONDS", 0.5)
    log = tell(said="spin", hang=300, stubborn=stubborn)
    begun = time.monotonic()
    with pytest.raises(CaptureError, match=r"profiling spin\(volatile int \*\): kernel replay"):
        capture(replace(ASKED, timeout=1.5), ncu, tmp_path / "new" / "step.ncu-rep")
    assert time.monotonic() - begun < 30
    (note,) = notes(log)
    assert gone(note["pid"])
    assert gone(note["child"])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_file_and_no_orphan(
    ncu: str, tell: Callable[..., Path], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    log = tell(said="spin", hang=300, report=QUICK)
    script = (
        "import sys\nfrom profiler import cli, session\nsession.checks.preflight = lambda ncu: []\n"
        f"sys.argv = ['cyinst', 'profile', '--ncu', {ncu!r}, '-o', {str(tmp_path / 'new')!r}, '--', './a']\n"
        "cli.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, cwd=ROOT, text=True)
    for _ in range(200):
        if log.exists() and left(tmp_path / "new"):
            break
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert said.strip() in ("cyinst: interrupted", "")
    (note,) = notes(log)
    assert gone(note["pid"])
    assert gone(note["child"])
    assert not (tmp_path / "new").exists()


def test_few_samples_are_sampled_again_more_often(
    ncu: str, tell: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CAPTURES / "samples_only.sm90.ncu-rep"
    have = sum(
        launch.number(s.sampled_metric) or 0
        for launch in load(few, instances=False, sources=False).launches
        for s in WarpState
    )
    assert 1000 < have < 2000
    log = tell(said="ok", report={"auto": str(few), "5": str(QUICK)})
    found = capture(ASKED, ncu, tmp_path / "a.ncu-rep", samples=2 * int(have) - 1)
    assert [x.samples for x in found.sidecar.tries] == [have, 30895]
    assert found.sidecar.kept == 1
    assert found.sidecar.tries[1].interval == 5
    assert found.sidecar.command[-3:] == ("--warp-sampling-interval", "5", "./a")
    assert found.launch.kernel == "alpha"
    assert left(tmp_path) == ["a.cyinst.json", "a.ncu-rep", "bin", "calls"]
    assert len(notes(log)) == 2
    # Not when that was not wanted, nor when the interval was given.
    assert len(capture(ASKED, ncu, tmp_path / "b.ncu-rep", samples=0).sidecar.tries) == 1
    tell(said="ok", report={"3": str(few)})
    assert len(capture(replace(ASKED, interval=3), ncu, tmp_path / "c.ncu-rep", samples=10**9).sidecar.tries) == 1
    # Nor after a run that took long.
    monkeypatch.setattr(sys.modules["profiler.capture"], "PATIENCE_SECONDS", 0.0)
    tell(said="ok", report={"auto": str(few)})
    assert len(capture(ASKED, ncu, tmp_path / "d.ncu-rep", samples=10**9).sidecar.tries) == 1


def test_a_second_run_that_fails_does_not_cost_the_first(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    tell(
        said="ok",
        report={"auto": str(CAPTURES / "samples_only.sm90.ncu-rep"), "0": str(CAPTURES / "basic.sm90.ncu-rep")},
    )
    found = capture(ASKED, ncu, tmp_path / "a.ncu-rep", samples=10**9)
    assert len(found.sidecar.tries) == 1
    assert left(tmp_path) == ["a.cyinst.json", "a.ncu-rep", "bin", "calls"]


def tried(value: int, samples: int, dropped: int = 0, full: bool = False) -> Try:
    return Try(None, float(2 ** (5 + value)), samples, dropped, full)


@pytest.mark.parametrize(
    ("tries", "value"),
    [
        ([tried(6, 5000)], None),
        ([tried(6, 999)], 5),
        ([tried(6, 100)], 2),
        ([tried(6, 0)], 0),
        ([tried(0, 10)], None),
        ([tried(2, 5000, dropped=64)], 4),
        ([tried(6, 100), tried(2, 1600, dropped=64)], 4),
        ([tried(4, 100, dropped=64), tried(6, 25)], 0),
        ([tried(6, 100), tried(4, 200, dropped=1)], None),
        ([tried(31, 1, dropped=64)], None),
        ([tried(6, 3_262_152, full=True)], 8),
        ([tried(6, 10), tried(0, 600), tried(0, 600)], None),
        ([Try(None, None, None, None)], None),
    ],
)
def test_the_next_interval(tries: list[Try], value: int | None) -> None:
    assert next_interval(tries) == value


def test_the_best_try_has_no_dropped_samples_and_then_the_most() -> None:
    assert best([tried(6, 100), tried(2, 1600, dropped=64), tried(4, 400)]) == 2
    assert best([tried(6, 100), tried(2, 1600)]) == 1
    assert best([tried(6, 100, dropped=64)]) == 0
    assert best([tried(6, 3_262_152, full=True), tried(8, 1_530_185)]) == 1


def test_a_full_buffer_is_seen_though_ncu_counts_nothing_dropped() -> None:
    # Launches of 49 ms on an H200 at one sample per 2,048 and per 4,096 cycles.
    assert fills_buffer(3_262_152, 33_554_432)
    assert not fills_buffer(3_062_392, 33_554_432)
    assert not fills_buffer(3_262_152, None)


def test_what_is_told_of_the_samples() -> None:
    assert told([tried(6, 3_262_152, full=True)], 0) == (
        "the buffer is full: what ran after 3,262,152 samples was not sampled"
    )
    assert told([tried(6, 5000)], 0) is None
    assert told([Try(None, None, None, None)], 0) is None
    text = told([tried(6, 100), tried(2, 900)], 1)
    assert text == (
        "sampled one per 2,048 cycles: 100 samples, then one per 128 cycles: 900 samples; "
        "only 900 samples: shares are uncertain by up to 1.7 points"
    )
    assert told([tried(6, 5000, dropped=96)], 0) == "96 bytes of samples were dropped"
    assert told([tried(0, 0)], 0) == "only 0 samples"


def test_verified_reads_ranges_with_and_without_a_domain() -> None:
    report = load(CAPTURES / "kinds.sm90.ncu-rep", instances=False, sources=False)
    widths = replace(report, launches=(report.launches[1],))
    for name in ("widths", "cyinst@widths", "step", "cyinst@widths/", "a/*/b"):
        assert verified(widths, replace(ASKED, nvtx=name)).kernel == "widths"
    for name in ("other", "other@widths"):
        with pytest.raises(CaptureError, match="was in <default domain>@step, cyinst@widths"):
            verified(widths, replace(ASKED, nvtx=name))
    whole = load(CAPTURES / "range_replay.sm90.ncu-rep", instances=False, sources=False)
    assert verified(whole, replace(ASKED, replay="range", kernel="x")).workload == "range"


def unsupported_on_the_second(card: int, value: object) -> object:
    if card:
        raise RuntimeError("Not Supported")
    return value


# A library with two cards; the second does not tell its power, nor why its clocks are low.
TWO_CARDS = SimpleNamespace(
    NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0,
    nvmlInit=lambda: None,
    nvmlShutdown=lambda: None,
    nvmlDeviceGetCount=lambda: 2,
    nvmlDeviceGetHandleByIndex=lambda i: i,
    nvmlDeviceGetName=lambda card: "NVIDIA H200" if card else b"NVIDIA H200",
    nvmlDeviceGetPciInfo=lambda card: SimpleNamespace(domain=0, bus=3 + card, device=0),
    nvmlDeviceGetClockInfo=lambda card, kind: 1980 if kind == 1 else 3201,
    nvmlDeviceGetTemperature=lambda card, sensor: 40 + card,
    nvmlDeviceGetPowerUsage=lambda card: unsupported_on_the_second(card, 120500),
    nvmlDeviceGetCurrentClocksThrottleReasons=lambda card: unsupported_on_the_second(card, 0x4 | 0x20),
)  # fmt: skip


@pytest.fixture
def library() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", TWO_CARDS)
        yield


@pytest.mark.usefixtures("library")
def test_what_a_card_does_not_tell_is_unknown() -> None:
    first, second = nvml.read()
    assert first == nvml.Reading(
        "NVIDIA H200", (0, 3, 0), 1980, 3201, 40, 120.5, ("power cap", "software thermal slowdown")
    )
    assert (second.power_w, second.reasons) == (None, None)
    assert nvml.of((first, second), (0, 4, 0)) is second
    assert nvml.of((first, second), (0, 9, 0)) is None
    assert nvml.of((first,), (0, 9, 0)) is first
    assert nvml.of((), None) is None


def test_without_the_library_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.read() == ()


@pytest.mark.usefixtures("library")
def test_sensors_are_kept_and_shown(ncu: str, tell: Callable[..., Path], tmp_path: Path) -> None:
    from dashboards.terminal.capture import sensors

    tell(said="quick", report=QUICK)
    found = capture(ASKED, ncu, tmp_path / "a.ncu-rep").sidecar
    # The report's card lies at 0:0:6, where neither of the two is.
    assert (found.before, found.after) == (None, None)
    first, second = nvml.read()
    assert sensors(first, second) == (
        "SM clock 1980 MHz, memory clock 3201 MHz, 40 -> 41 C, 120 -> ? W, held down by power cap, software thermal "
        "slowdown"
    )
    assert sensors(second, None).endswith("power unknown, throttling unknown")
    assert sensors(None, None).startswith("unknown")


def test_programs_may_print_without_end(ncu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from profiler import ncu_run

    monkeypatch.setattr(ncu_run, "KEPT_BYTES", 1 << 14)
    talk = "print('==PROF== Profiling \"k\" - 0: 0%....100% - 3 passes')\nfor i in range(20000): print('line', i)"
    outcome = ncu_run.run([sys.executable, "-c", talk], environment=dict(os.environ))
    assert outcome.profiled == ("k",)
    assert outcome.said[-1] == "line 19999"
    assert len(outcome.said) < 3000
