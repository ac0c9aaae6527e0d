"""A damaged file gives a report or one line that names it; it never takes the caller down and never hangs."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from profiler.errors import MissingToolError, ReportError
from profiler.model import Report
from profiler.ncu_parse import load

TIMEOUT = 30.0
CUTS = 200
FLIPPED = 60
pytestmark = pytest.mark.usefixtures("no_cache")


def outcome(path: Path, sources: bool = True, instances: bool = True) -> str:
    """``report``, ``refused`` or what is wrong with the answer."""
    started = time.perf_counter()
    try:
        report = load(path, timeout=TIMEOUT, sources=sources, instances=instances)
    except ReportError as error:
        message = str(error)
        if "did not finish" in message or time.perf_counter() - started > TIMEOUT + 5:
            return f"{path.name}: hangs"
        if "\n" in message or str(path) not in message:
            return f"{path.name}: says {message!r}"
        if "exit code" in message:
            return f"{path.name}: an error of our own escaped: {message!r}"
        return "refused"
    except BaseException as error:
        return f"{path.name}: raises {error!r}"
    if not isinstance(report, Report) or not report.launches:
        return f"{path.name}: gives {report!r}"
    if any("\n" in x for x in report.problems):
        return f"{path.name}: says {report.problems!r}"
    return "report"


def outcomes(paths: Iterable[Path], **options: bool) -> dict[str, int]:
    """Count the outcomes; anything but the two good ones fails the test by name."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(partial(outcome, **options), paths))
    bad = [x for x in found if x not in ("report", "refused")]
    assert not bad, f"{len(bad)} of {len(found)}: {bad[:5]}"
    return {x: found.count(x) for x in ("report", "refused")}


@pytest.fixture
def smallest(capture: Callable[[str], Path]) -> bytes:
    """The bytes of the smallest capture."""
    path = min(capture("kinds").parent.glob("*.ncu-rep"), key=lambda p: p.stat().st_size)
    return path.read_bytes()


def flipped(data: bytes, rng: random.Random, where: range) -> bytes:
    copy = bytearray(data)
    for _ in range(rng.randint(1, 20)):
        copy[rng.choice(where)] ^= 1 << rng.randrange(8)
    return bytes(copy)


def test_every_stranger_gives_a_report_and_only_the_empty_one_is_refused(corpus_files: tuple[Path, ...]) -> None:
    empty = sum(p.stat().st_size == 0 for p in corpus_files)
    found = outcomes(corpus_files, sources=False, instances=False)
    assert found == {"report": len(corpus_files) - empty, "refused": empty}


def test_random_bytes_with_and_without_the_mark_of_a_report_are_refused(tmp_path: Path) -> None:
    rng = random.Random(11)
    files = []
    for i, size in enumerate((0, 1, 3, 4, 7, 8, 64, 1000, 100_000)):
        for mark in (b"", b"NVR\0", b"NVR\0\0\0\0\0", b"\x28\xb5\x2f\xfd"):
            files.append(tmp_path / f"random{i}_{len(mark)}_{mark[:1].hex()}.ncu-rep")
            files[-1].write_bytes(mark + rng.randbytes(size))
    assert outcomes(files) == {"report": 0, "refused": len(files)}


def test_two_hundred_truncated_copies_are_refused_or_read_and_none_hangs_or_kills_us(
    smallest: bytes, tmp_path: Path
) -> None:
    rng = random.Random(12)
    files = []
    for i in range(CUTS):
        files.append(tmp_path / f"cut{i}.ncu-rep")
        files[-1].write_bytes(smallest[: rng.randrange(len(smallest))])
    # The only launch is in the last block, so a cut anywhere loses it.
    assert outcomes(files) == {"report": 0, "refused": CUTS}


def test_a_truncated_report_of_six_launches_names_what_it_lost(capture: Callable[[str], Path], tmp_path: Path) -> None:
    data = capture("kinds").read_bytes()
    whole = [x.kernel for x in load(capture("kinds"), instances=False, sources=False).launches]

    def left(part: int) -> Report | None:
        path = tmp_path / f"cut{part}.ncu-rep"
        path.write_bytes(data[: len(data) * part // 12])
        try:
            return load(path, timeout=TIMEOUT, instances=False, sources=False)
        except ReportError:
            return None

    with ThreadPoolExecutor(2) as pool:
        reports = [x for x in pool.map(left, range(1, 12)) if x is not None]
    assert reports, "no cut left a launch: this test looked at nothing"
    for report in reports:
        kernels = [x.kernel for x in report.launches]
        assert len(kernels) < len(whole)
        assert kernels == whole[: len(kernels)]
        assert any("truncated or damaged" in x for x in report.problems)
        assert all(x.number("gpu__time_duration.sum") for x in report.launches)


def test_sixty_copies_with_flipped_bits_in_header_and_body_never_take_us_down(
    smallest: bytes, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    rng = random.Random(13)
    files = []
    for i in range(FLIPPED):
        data = capture("range_replay").read_bytes() if i % 4 == 3 else smallest
        # Every third in the headers, where the lengths are, behind the mark.
        where = range(4, 300) if i % 3 == 0 else range(4, len(data))
        files.append(tmp_path / f"flip{i}.ncu-rep")
        files[-1].write_bytes(flipped(data, rng, where))
    found = outcomes(files)
    # Flips in numbers go unnoticed, flips in lengths do not: both kinds must have been met.
    assert min(found.values()) > 5, found


def test_a_name_that_is_no_text_costs_its_launch_and_not_the_program(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    data = capture("kinds").read_bytes()
    path = tmp_path / "name.ncu-rep"
    path.write_bytes(data.replace(b"gpu__time_duration.sum", b"gpu__time_durati\xff\xfe.sum"))
    assert outcome(path) in ("report", "refused")


# ---- a reader that dies, hangs or talks nonsense: a stand-in for the child's Python ---------------------------------


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def refusal(path: Path, timeout: float | None = None) -> str:
    with pytest.raises(ReportError) as caught:
        load(path, timeout=timeout)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.skipif(sys.platform == "win32", reason="signals and sh")
@pytest.mark.parametrize("signal", ["SEGV", "ABRT", "KILL", "BUS"])
def test_a_reader_that_dies_of_a_signal_is_a_line_that_names_the_signal(
    signal: str, capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, f"kill -{signal} $$")
    assert f"died of SIG{signal}" in refusal(capture("states_only"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals and sh")
def test_a_reader_that_hangs_is_ended_at_the_time_limit_and_said_so(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    stand_in(tmp_path, monkeypatch, f"echo $$ >{mark}; exec sleep 60")
    started = time.perf_counter()
    message = refusal(capture("states_only"), timeout=0.5)
    assert time.perf_counter() - started < 5
    # It is gone, not left running.
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert "did not finish within 0.5 s" in message


@pytest.mark.skipif(sys.platform == "win32", reason="signals and sh")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'first line' >&2; echo 'the last line' >&2; exit 3", "exit code 3 (the last line)"),
        ("exit 0", "exit code 0"),
        ("echo hello; exit 0", "damaged"),
    ],
)
def test_a_reader_that_stops_without_an_answer_is_a_line_and_not_an_exception_of_pickle(
    script: str, says: str, capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    assert says in refusal(capture("states_only"))


NOISY = """
import importlib, os, sys
os.write(1, b"noise of native code\\n" * 100)
print("noise of Python " * 100)
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
del sys.modules["ncu_report"]
sys.modules["ncu_report"] = importlib.import_module("ncu_report")
"""


def test_what_the_reader_prints_does_not_spoil_its_answer(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A reader that prints to stdout, by Python and past it, before it does its work.
    (tmp_path / "ncu_report.py").write_text(NOISY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert [x.kernel for x in load(capture("states_only")).launches] == ["saxpy"]


def test_a_reader_module_that_cannot_be_imported_is_a_missing_tool_and_not_a_damaged_report(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ncu_report.py").write_text("raise ImportError('no such library: libnvperf_host.so')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MissingToolError) as caught:
        load(capture("states_only"))
    assert "pip install ncu-report" in str(caught.value)
    assert "libnvperf_host.so" in str(caught.value)
