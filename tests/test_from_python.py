"""``profiler.capture`` and ``profiler.profile``: scripts that run themselves again under a stand-in for ncu."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import CAPTURES, ROOT, validate
from made_up_reports import only
from test_capture import ncu as ncu

import profiler
from profiler import from_python, payload, relaunch, session
from profiler.errors import MissingToolError, UsageError
from profiler.model import Work

STAGE = Path(__file__).parent / "stage"
HEAD = "import json, sys\nimport profiler\nfrom stage import did, launch, say\n"
# The ranges of the recorded launches, and how long those took.
LARGE, WIDTHS = "saxpy.large", "widths"


class Play:
    """What a script wrote, and what it did: ``parent`` itself, ``ncu`` when it was run again."""

    def __init__(self, done: subprocess.CompletedProcess[str], log: Path, calls: Path) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        notes = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        self.notes = notes
        self.parent, self.ncu = (
            [n["did"] for n in notes if n["run"] == run and "did" in n] for run in ("parent", "ncu")
        )
        self.runs = [json.loads(line)["argv"] for line in calls.read_text().splitlines()] if calls.exists() else []

    @property
    def last(self) -> str:
        """The last line of its standard error: what an uncaught error says."""
        return self.err.splitlines()[-1]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One report for each range."""
    data, folder = (CAPTURES / "kinds.sm90.ncu-rep").read_bytes(), tmp_path_factory.mktemp("reports")
    for index, name in enumerate((LARGE, WIDTHS)):
        (folder / name).write_bytes(only(data, index))
    return {name: str(folder / name) for name in (LARGE, WIDTHS)}


@pytest.fixture
def play(ncu: str, reports: dict[str, str], tmp_path: Path) -> Callable[..., Play]:
    """``play(script, *words, **variables)`` runs a script; without words as ``python script.py``."""

    def call(text: str, *words: str, stdin: str | None = None, **variables: str) -> Play:
        (tmp_path / "script.py").write_text(HEAD + textwrap.dedent(text))
        log, calls = tmp_path / "log", tmp_path / "calls"
        for file in (log, calls):
            file.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{Path(ncu).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{STAGE}{os.pathsep}{ROOT}",
            "STAGE_LOG": str(log),
            "FAKE_NCU": json.dumps({"replay": reports, "log": str(calls)}),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, *(words or ("script.py",))], cwd=tmp_path, env=environment, capture_output=True, text=True,
            input=stdin, stdin=subprocess.DEVNULL if stdin is None else None, timeout=120, check=False,
        )  # fmt: skip
        return Play(done, log, calls)

    return call


STEP = """
    did("before")
    with profiler.capture("saxpy.large", work=(64, 64, 64)) as c:
        did("body")
        launch("saxpy")
    did("after")
    say(f"{c.account.launch.kernel} {c.account.duration_ns} {c.launch.kernel} {c.path}")
    say(f"{c.sidecar.work.macs:g} {c.error}")
"""


def test_the_account_comes_to_the_script(play: Callable[..., Play], tmp_path: Path) -> None:
    done = play(STEP)
    assert (done.code, done.err) == (0, "")
    kernel, duration, again, path, macs, error = done.out.split()
    assert (kernel, again, error) == ("saxpy", "saxpy", "None")
    assert float(duration) > 1000
    assert float(macs) == 64**3
    # The script goes on here, and ends after the block there.
    assert done.parent == ["before", "body", "after"]
    assert done.ncu == ["before", "body"]
    (words,) = done.runs
    assert words[-2:] == [sys.executable, str(tmp_path / "script.py")]
    assert words[words.index("--nvtx-include") + 1] == "cyinst@saxpy.large/"
    report = tmp_path / path
    assert report.parent == tmp_path / "cyinst-captures"
    assert report.name.endswith("-saxpy.large.ncu-rep")
    document = json.loads((report.with_name(report.name.replace(".ncu-rep", ".cyinst.json"))).read_text())
    validate(document)
    assert document["program"] == [sys.executable, str(tmp_path / "script.py")]


@pytest.mark.parametrize("how", ["module", "code", "options", "folder", "moved"])
def test_every_way_to_start_a_script(play: Callable[..., Play], tmp_path: Path, how: str) -> None:
    if how == "folder":
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "__main__.py").write_text(HEAD + textwrap.dedent(STEP))
    moved = "import os\n    os.chdir('/')\n    " if how == "moved" else ""
    words = {
        "module": ("-m", "script"),
        "code": ("-c", HEAD + textwrap.dedent(STEP)),
        "options": ("-W", "ignore", "-u", "./script.py", "--steps", "3"),
        "folder": ("app",),
        "moved": ("script.py",),
    }[how]
    text = STEP if not moved else f"    {moved}" + STEP.replace("work=", f"output={str(tmp_path / 'out')!r}, work=")
    done = play(text, *words)
    assert (done.code, done.err) == (0, "")
    assert done.ncu == ["before", "body"]
    assert done.out.startswith("saxpy ")
    program = done.runs[0][done.runs[0].index(sys.executable) + 1 :]
    assert len(program) == len(words)
    assert program[0] == (str(tmp_path / "script.py") if how == "moved" else words[0])
    if how == "options":
        assert program[4:] == ["--steps", "3"]


def test_names_and_occurrences_are_told_apart(play: Callable[..., Play]) -> None:
    done = play("""
        found = []
        for i in range(3):
            with profiler.capture("saxpy.large") as c:
                did(f"large {i}")
                launch("saxpy")
            found.append(c.path.name)
            # What a script decides by what was captured before is decided again in the same way.
            if c.account.launch.kernel == "saxpy":
                did(f"saxpy {i}")
        with profiler.capture("widths", process_wide=True) as d:
            did("widths")
            launch("widths")
        say(d.launch.kernel)
        say(len(set(found)))
    """)
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == ["widths", "3"]
    assert len(done.runs) == 4
    assert done.parent == ["large 0", "saxpy 0", "large 1", "saxpy 1", "large 2", "saxpy 2", "widths"]
    assert done.ncu == [did for n in (1, 3, 5, 7) for did in done.parent[:n]]
    # One launch in one range in each run: other calls only run on.
    launched = [n["ranges"] for n in done.notes if n["run"] == "ncu" and "launch" in n]
    assert [r for r in launched if r] == [["cyinst@saxpy.large/"]] * 3 + [["cyinst@widths"]]
    assert not any(n["ranges"] for n in done.notes if n["run"] == "parent" and "launch" in n)


def test_blocks_in_blocks(play: Callable[..., Play]) -> None:
    done = play("""
        with profiler.capture("widths") as outer:
            launch("widths")
            with profiler.capture("saxpy.large") as inner:
                launch("saxpy")
            did(inner.launch.kernel)
        say(outer.launch.kernel)
    """)
    assert (done.code, done.err, done.out.strip()) == (0, "", "widths")
    assert (done.parent, done.ncu) == (["saxpy"], ["saxpy"])
    ranges = [n["ranges"] for n in done.notes if n["run"] == "ncu" and "launch" in n]
    assert ranges[:2] == [[], ["cyinst@saxpy.large/"]]
    assert ranges[2] == ranges[3] == ["cyinst@widths/"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "import os\nif 'NV_NSIGHT_INJECTION_PORT_BASE' in os.environ: sys.exit(0)\n"
            "with profiler.capture('saxpy.large'): launch('saxpy')",
            "profiler.errors.CaptureError: capture('saxpy.large'): the script, run again under ncu, ended before it "
            "came to this call: it must take the same way each time",
        ),
        (
            "import os\nif 'NV_NSIGHT_INJECTION_PORT_BASE' in os.environ: sys.exit('no such file')\n"
            "with profiler.capture('saxpy.large'): launch('saxpy')",
            "profiler.errors.CaptureError: capture('saxpy.large'): the program failed under ncu with exit code 1; it "
            "said: no such file; nothing is kept: does it run through without cyinst?",
        ),
        (
            "import os\nwith profiler.capture('saxpy.large'):\n"
            "    launch('saxpy')\n    1 / ('NV_NSIGHT_INJECTION_PORT_BASE' not in os.environ)",
            "failed under ncu with exit code 1; it said: .* / ZeroDivisionError: division by zero; nothing is kept",
        ),
        (
            "launch('saxpy')\nwith profiler.capture('saxpy.large'): pass",
            "profiler.errors.NoLaunchError: capture('saxpy.large'): it ran under ncu, and no launch was in NVTX range "
            "'cyinst@saxpy.large'",
        ),
        (
            "with profiler.capture('saxpy.large', kernel='gemm'): launch('saxpy')",
            "NoLaunchError: capture('saxpy.large'): it ran under ncu, and no launch was in kernel 'gemm', NVTX range",
        ),
        (
            "with profiler.capture('saxpy.large', plan='most'): did('body')",
            "NoMatchError: there is no plan 'most'; there are quick, books, full",
        ),
        (
            "with profiler.capture('saxpy.large', kernel='('): did('body')",
            "UsageError: --kernel '(' is not a regular expression",
        ),
        ("with profiler.capture('a step'): did('body')", "capture('a step'): a name is made of letters"),
        (
            "with profiler.capture('saxpy.large', shape='64'): did('body')",
            "TypeError: capture() got an unexpected keyword argument 'shape'",
        ),
        ("with profiler.capture('saxpy.large', ncu='/no/ncu'): launch('saxpy')", "MissingToolError: /no/ncu: cannot"),
    ],
    ids="unreached fails raises empty nokernel plan regex name option noncu".split(),
)
def test_what_stands_in_the_way_is_one_line(play: Callable[..., Play], tmp_path: Path, text: str, line: str) -> None:
    done = play(text)
    assert done.code == 1
    if line.startswith("failed"):
        import re

        assert re.search(line, done.last)
    else:
        assert line in done.last
    assert "body" not in done.parent
    assert not (tmp_path / "cyinst-captures").exists()


def test_a_script_may_live_with_a_failure_and_does_so_again(play: Callable[..., Play]) -> None:
    done = play("""
        c = profiler.capture("saxpy.large")
        try:
            with c:
                did("empty")
        except profiler.CyinstError as error:
            did(type(error).__name__)
        try:
            c.account
        except profiler.CyinstError as error:
            say(error)
        with profiler.capture("widths") as d:
            launch("widths")
        say(d.account.launch.kernel)
        say(type(c.error).__name__)
    """)
    assert (done.code, done.err) == (0, "")
    said = done.out.splitlines()
    assert said[0].startswith("capture('saxpy.large'): it ran under ncu, and no launch")
    assert said[1:] == ["widths", "NoLaunchError"]
    assert done.ncu == ["empty", "empty", "NoLaunchError"]


def test_an_error_in_the_block_is_the_scripts_own(play: Callable[..., Play]) -> None:
    done = play("""
        c = profiler.capture("saxpy.large")
        try:
            with c:
                raise ValueError("bad input")
        except ValueError as error:
            say(error)
        c.account
    """)
    assert done.out == "bad input\n"
    assert done.last == "profiler.errors.UsageError: capture('saxpy.large'): was left by ValueError"
    assert done.runs == []


def test_profile_calls_the_function_under_ncu_alone(play: Callable[..., Play]) -> None:
    done = play("""
        def step(size, times=1):
            did(f"step {size} {times}")
            for i in range(times):
                launch("saxpy")
        c = profiler.profile(lambda: step(3, times=2), name="saxpy.large", work=profiler.Work(5e6), warmup=2, skip=1)
        did("after")
        say(f"{c.account.per_work.work.macs:g} {c.launch.kernel} {c.sidecar.plan}")
        d = profiler.profile(step, 4, times=1, name="saxpy.large", plan="books", samples=0)
        say(d.sidecar.plan)
    """)
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == ["5e+06", "saxpy", "quick", "books"]
    assert done.parent == ["after"]
    # Two calls to warm up and the one that counts; the second run passes by the first call.
    assert done.ncu == ["step 3 2"] * 3 + ["after"] + ["step 4 1"] * 2
    ranges = [n["ranges"] for n in done.notes if n["run"] == "ncu" and "launch" in n]
    assert ranges == [[]] * 4 + [["cyinst@saxpy.large/"]] * 2 + [[], ["cyinst@saxpy.large/"]]
    assert done.runs[0][done.runs[0].index("--launch-skip") + 1] == "1"


SESSION = """
import profiler, library
from stage import say, did
c = profiler.profile(library.step, 7, times=1, name="saxpy.large", work=(8, 8, 8))
did("after")
say(f"{c.account.launch.kernel} {c.account.per_work.work.macs:g}")
"""


def test_a_session_sends_the_function(play: Callable[..., Play]) -> None:
    done = play("", "-", stdin=SESSION)
    assert (done.code, done.err, done.out) == (0, "", "saxpy 512\n")
    assert done.parent == ["after"]
    assert done.ncu == ["step 7"] * 2
    assert [n["ranges"] for n in done.notes if "launch" in n] == [[], ["cyinst@saxpy.large/"]]
    assert done.runs[0][-4:-1] == [sys.executable, "-m", "profiler.payload"]
    # What stands in the way is told as it is for scripts.
    done = play("", "-", stdin=SESSION.replace("times=1", "times=0"))
    assert done.last.startswith(
        "profiler.errors.NoLaunchError: profile('saxpy.large'): it ran under ncu, and no launch"
    )
    done = play("", "-", stdin=SESSION.replace("times=1", "size=1"))
    assert "failed under ncu with exit code 1" in done.last
    assert "multiple values for argument 'size'" in done.last


def test_a_prompt_is_a_session(play: Callable[..., Play]) -> None:
    done = play("", "-i", "-q", stdin=SESSION)
    assert done.out == "saxpy 512\n"
    done = play(
        "", "-i", "-q", stdin="import stage, profiler\nwith profiler.capture('saxpy.large'): stage.did('body')\n\n"
    )
    assert "UsageError: capture('saxpy.large'): there is no script to run again here: call profiler.profile" in done.err
    assert done.parent == []
    assert done.runs == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "def mine(): pass\nprofiler.profile(mine)",
            "profile(mine): is, or uses, what the prompt alone defines",
        ),
        ("profiler.profile(lambda: 1)", "profile(lambda): cannot be sent to a process of its own"),
        ("profiler.profile(library.step, open('/dev/null'))", "profile(step): cannot be sent to a process of its own"),
    ],
)
def test_what_cannot_be_sent_is_told(play: Callable[..., Play], text: str, line: str) -> None:
    # Also where cloudpickle is installed.
    head = "import sys; sys.modules['cloudpickle'] = None\nimport profiler, library\n"
    done = play("", "-", stdin=head + text)
    assert done.last.startswith(f"profiler.errors.UsageError: {line}")
    assert done.last.endswith("put it in a module that can be imported, or install cloudpickle")
    assert done.runs == []


def test_cloudpickle_sends_what_a_session_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def dumps(what: Any) -> bytes:
        used.append(what)
        return b"__main__ by value"

    monkeypatch.setitem(sys.modules, "cloudpickle", SimpleNamespace(dumps=dumps))
    fn = lambda: None  # noqa: E731
    head = pickle.loads(payload.pack(fn, (1,), {"a": 2}, name="x", warmup=3, process_wide=True))
    assert used == [(fn, (1,), {"a": 2})]
    assert head == {"path": sys.path, "name": "x", "warmup": 3, "process_wide": True, "body": b"__main__ by value"}


def test_only_the_main_process_leads(play: Callable[..., Play]) -> None:
    done = play("""
        import os
        from multiprocessing import get_context
        def work():
            try:
                with profiler.capture("saxpy.large"):
                    did("child")
                    launch("saxpy")
            except profiler.CyinstError as error:
                did(str(error))
        if __name__ == "__main__":
            for how in ("fork", "spawn"):
                child = get_context(how).Process(target=work)
                child.start()
                child.join()
            with profiler.capture("saxpy.large") as c:
                launch("saxpy")
            say(c.launch.kernel)
    """)
    assert (done.code, done.err, done.out) == (0, "", "saxpy\n")
    assert len(done.runs) == 1
    assert done.parent == ["capture('saxpy.large'): only the main process of a script can run it again under ncu"] * 2
    # Children of the run under ncu are passed by, and are not its end.
    assert done.ncu == ["child", "child"]


def test_children_of_the_run_end_with_it(play: Callable[..., Play]) -> None:
    done = play("""
        import time
        from multiprocessing import get_context
        if __name__ == "__main__":
            get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True).start()
            with profiler.capture("saxpy.large", timeout=20) as c:
                launch("saxpy")
            say(c.launch.kernel)
    """)
    assert (done.code, done.err, done.out) == (0, "", "saxpy\n")


def test_a_program_that_the_run_starts_profiles_nothing(play: Callable[..., Play], tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(
        HEAD + "with profiler.capture('saxpy.large'):\n    did('inner')\n    launch('widths')\ndid('inner goes on')\n"
    )
    done = play("""
        import os, subprocess
        with profiler.capture("saxpy.large") as c:
            launch("saxpy")
            if "NV_NSIGHT_INJECTION_PORT_BASE" in os.environ:
                subprocess.run([sys.executable, "inner.py"], check=True)
        say(c.launch.kernel)
    """)
    assert (done.code, done.err, done.out) == (0, "", "saxpy\n")
    assert len(done.runs) == 1
    assert done.ncu == ["inner", "inner goes on"]


@pytest.mark.parametrize("variable", ["NV_COMPUTE_PROFILER_PERFWORKS_DIR", "NSYS_PROFILING_SESSION_ID"])
def test_under_somebody_elses_profiler_only_the_ranges_are_opened(play: Callable[..., Play], variable: str) -> None:
    text = STEP.replace('did("after")', "profiler.profile(launch, 'alpha', name='widths')")
    done = play(text, **{variable: "1"})
    assert [n["ranges"] for n in done.notes if "launch" in n] == [["cyinst@saxpy.large/"], [], ["cyinst@widths/"]]
    assert done.last == (
        "profiler.errors.UsageError: capture('saxpy.large'): ran under a profiler that was started by hand: its launch "
        "is in that profiler's report"
    )
    assert done.runs == []


def test_one_process_of_a_job_does_not_run_again_alone(play: Callable[..., Play]) -> None:
    done = play(STEP, WORLD_SIZE="2")
    assert "UsageError: capture('saxpy.large'): this is one of 2 processes of a job" in done.last
    assert done.parent == ["before"]
    assert play(STEP, WORLD_SIZE="1").code == 0


def test_the_run_under_ncu_imports_nothing_heavy() -> None:
    script = (
        "import sys, profiler\n"
        "try:\n"
        "    with profiler.capture('x'): pass\n"
        "finally:\n"
        "    heavy = {'numpy', 'pandas', 'rich', 'cupy', 'ncu_report', 'subprocess', 'profiler.session'}\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = {**os.environ, relaunch.VARIABLE: relaunch.OFF}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("first", ["", "import profiler.capture, profiler.compare, profiler.commands.profile\n"])
def test_the_names_are_functions_whatever_was_imported(first: str) -> None:
    script = (
        f"import profiler\n{first}import profiler.session, profiler.commands.compare\n"
        "from profiler.capture import Captured\nfrom profiler import capture\n"
        "for _ in range(2):\n"
        "    for name in profiler.__all__:\n"
        "        thing = getattr(profiler, name)\n"
        "        assert callable(thing) or name == '__version__', (name, thing)\n"
        "assert capture is profiler.capture and capture.__module__ == 'profiler.from_python'\n"
        "assert profiler.session.capture is not capture\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_names_of_functions() -> None:
    from functools import partial

    class Layer:
        def __call__(self) -> None: ...

    names = [from_python._name_of(f) for f in (lambda: 1, partial(max, 1), Layer(), test_names_of_functions, Path.cwd)]
    assert names == ["lambda", "max", "Layer", "test_names_of_functions", "cwd"]


@pytest.mark.parametrize(("code", "error"), [(0, 0), (3, 0), (4, 0), (201, 0), (700, 700)])
def test_the_context_is_waited_for(monkeypatch: pytest.MonkeyPatch, code: int, error: int) -> None:
    monkeypatch.setattr(relaunch.ctypes, "CDLL", lambda name: SimpleNamespace(cuCtxSynchronize=lambda: code))
    assert relaunch.synchronise() == error


def test_a_launch_that_fails_fails_the_run(play: Callable[..., Play]) -> None:
    done = play("""
        from types import SimpleNamespace
        from profiler import relaunch
        relaunch.ctypes.CDLL = lambda name: SimpleNamespace(cuCtxSynchronize=lambda: 700)
        with profiler.capture("saxpy.large"):
            launch("saxpy")
    """)
    assert "failed under ncu with exit code 1; it said: CUDA error 700 in what was profiled" in done.last


def test_work_is_checked_before_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaunch, "script", lambda: [sys.executable, "x.py"])
    monkeypatch.setattr(from_python, "_preflight", lambda ncu: None)
    with pytest.raises(UsageError, match="GEMM sizes must be positive"), profiler.capture("x", work=(1, 2, 0)):
        pytest.fail("the block ran")
    one = profiler.capture("x", work=(2, 3, 4), output=Path("a.ncu-rep"))
    assert repr(one) == "<capture('x'): has not begun>"
    one._begin()
    assert one._target is not None
    assert one._options is not None
    assert one._target.work == Work.gemm(2, 3, 4)
    assert one._options.output == "a.ncu-rep"
    assert repr(one) == "<capture('x') no. 2: has not ended yet>"
    with pytest.raises(UsageError, match=r"^capture\('x'\) no. 2: has not ended yet$"):
        _ = one.account


def test_a_machine_that_cannot_profile_is_told_before_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaunch, "script", lambda: [sys.executable, "x.py"])

    def refuse(options: session.Options) -> list[str]:
        raise MissingToolError("there is no GPU")

    monkeypatch.setattr(session, "preflight", refuse)
    with pytest.raises(MissingToolError, match="no GPU"), profiler.capture("x", ncu="ncu.1"):
        pytest.fail("the block ran")
    monkeypatch.setattr(session, "preflight", lambda options: [f"DCGM beside {options.ncu}"])
    with pytest.warns(UserWarning, match=r"^cyinst: DCGM beside ncu\.2$"):
        profiler.capture("x", ncu="ncu.2")._begin()
