"""Fixtures: where the reports are, and a loud word when the strangers' reports are not here."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_helpers import Outcome, runner

from profiler.model import Report
from profiler.ncu_parse import read

REPO = Path(__file__).resolve().parent.parent
DEMO = tuple(REPO / "tests" / "captures" / "trial" / f"q6k_{kind}_loads.sm90.ncu-rep" for kind in ("byte", "wide"))
BUNDLED = tuple(sorted((REPO / "profiler" / "demo").glob("*.ncu-rep")))
CAPTURES = (*BUNDLED, *sorted((REPO / "tests" / "captures").glob("*.ncu-rep")))
# Reports of other people are never part of this repository; CYINST_CORPUS names the folder that holds them.
CORPUS = Path(os.environ.get("CYINST_CORPUS") or REPO.parent / "shared" / "corpus")
CORPUS_FILES = (
    tuple(sorted(p for p in CORPUS.iterdir() if p.is_file() and p.name != "README.md")) if CORPUS.is_dir() else ()
)
ABSENT = f"corpus not found: no reports in {CORPUS} (set CYINST_CORPUS)"


@functools.cache
def read_once(path: Path) -> Report:
    """Read a report in this process, once for the whole run."""
    return read(path)


def _corpus_or_skip() -> tuple[Path, ...]:
    if not CORPUS_FILES:
        pytest.skip(ABSENT)
    return CORPUS_FILES


@pytest.fixture(scope="session")
def demo_paths() -> tuple[Path, Path]:
    """The bundled captures: byte loads, wide loads."""
    return DEMO[0], DEMO[1]


@pytest.fixture(scope="session")
def capture() -> Callable[[str], Path]:
    """``capture("kinds")`` is the path of tests/captures/kinds.sm90.ncu-rep."""

    def path_of(name: str) -> Path:
        path = REPO / "tests" / "captures" / f"{name}.sm90.ncu-rep"
        assert path.is_file(), path
        return path

    return path_of


@pytest.fixture(scope="session")
def corpus_files() -> tuple[Path, ...]:
    """Every file of the corpus, the empty one included."""
    return _corpus_or_skip()


@pytest.fixture(scope="session")
def readable_paths() -> tuple[Path, ...]:
    """Every readable report that is here: demo, captures and, where present, the corpus."""
    return (*DEMO, *CAPTURES, *(p for p in CORPUS_FILES if p.stat().st_size > 0))


@pytest.fixture(scope="session")
def load_once() -> Callable[[Path], Report]:
    """``read`` with a memory, for tests that only look."""
    return read_once


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """``run("report", path)`` is what the command wrote and its exit code, at 80 columns."""
    return runner(capsys, monkeypatch)


@pytest.fixture(scope="module")
def corpus_file(request: pytest.FixtureRequest) -> Path:
    """One file of the corpus (a test that asks for it runs once for each file)."""
    if request.param is None:
        pytest.skip(ABSENT)
    return request.param


@pytest.fixture(scope="module")
def report_path(request: pytest.FixtureRequest) -> Path:
    """One readable report: each of the demo, of tests/captures and of the corpus."""
    if request.param is None:
        pytest.skip(ABSENT)
    return request.param


@pytest.fixture(scope="module")
def report(report_path: Path) -> Report:
    """The report of ``report_path``, read in this process."""
    return read_once(report_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    corpus: list[Path | None] = list(CORPUS_FILES) or [None]
    own: list[Path | None] = [*DEMO, *CAPTURES]
    readable = [p for p in corpus if p is None or p.stat().st_size > 0]
    for name, paths in (("corpus_file", corpus), ("report_path", own + readable)):
        if name in metafunc.fixturenames:
            ids = ["no-corpus" if p is None else p.name for p in paths]
            metafunc.parametrize(name, paths, ids=ids, indirect=True, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: nvidia-smi not found"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = sum("corpus not found" in str(r.longrepr) for r in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(f"corpus not found: {skipped} tests skipped ({CORPUS})", yellow=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the tests read, disassemble and compile out of the user's cache, and share it between them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CYINST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def no_cache() -> Iterator[None]:
    """For tests of what works without the cache: every ``load`` starts a child process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CYINST_CACHE", "off")
        yield
