"""The cache: where it is, whose entries are believed, what goes when there are too many; and reports from it."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiler import build, cache, kept_reports, ncu_parse, nvdisasm
from profiler.errors import MissingToolError, ReportError
from profiler.vocabulary import OPCODES

KIND = cache.Kind("things", 10, 1000)
posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX's")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "own"))
    assert cache.folder() == tmp_path / "own"
    monkeypatch.delenv("CYINST_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "cyinst"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "cyinst"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.folder() == tmp_path / "local" / "cyinst"


def test_an_entry_is_what_was_put_last(root: Path) -> None:
    assert cache.get(KIND, "a") is None
    assert cache.put(KIND, "a", b"one") == root / "things" / "a" == cache.place(KIND, "a")
    assert cache.get(KIND, "a") == b"one"
    cache.put(KIND, "a", b"two")
    assert cache.get(KIND, "a") == b"two"
    assert cache.get(cache.Kind("others", 10), "a") is None
    # No half-written file stays beside it.
    assert names(root / "things") == {"a"}


def test_off_keeps_nothing_and_finds_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KIND, "a", b"one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CYINST_CACHE", "off")
    assert cache.folder() is None
    assert cache.get(KIND, "a") is None
    assert cache.put(KIND, "b", b"two") is None
    assert names(tmp_path) == {"kept"}
    assert names(root / "things") == {"a"}


def test_a_cache_that_cannot_be_written_gives_nothing_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "file"))
    assert cache.put(KIND, "a", b"one") is None
    assert cache.get(KIND, "a") is None


def test_a_full_disk_leaves_no_part_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    assert cache.put(KIND, "a", b"one") is None
    assert names(root / "things") == set()


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_could_have_written_is_not_believed(mode: int) -> None:
    path = cache.put(KIND, "a", b"one")
    assert path is not None
    path.chmod(mode)
    assert cache.get(KIND, "a") is None
    cache.put(KIND, "a", b"two")
    assert cache.get(KIND, "a") == b"two"


@posix
def test_what_another_user_owns_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KIND, "a", b"one")
    monkeypatch.setattr(cache.os, "getuid", lambda: os.stat(__file__).st_uid + 1)
    assert cache.get(KIND, "a") is None


def test_beyond_the_number_the_least_used_go(root: Path) -> None:
    for n in range(10):
        path = cache.put(KIND, f"{n}", b"")
        assert path is not None
        os.utime(path, (n, n))
    cache.get(KIND, "0")
    cache.put(KIND, "new", b"")
    # Down to nine tenths. The first was of use a moment ago.
    assert names(root / "things") == {"0", "new", *(str(n) for n in range(3, 10))}


def test_beyond_the_size_the_least_used_go_but_never_the_new_one(root: Path) -> None:
    for n in range(4):
        path = cache.put(KIND, f"{n}", bytes(250))
        assert path is not None
        os.utime(path, (n, n))
    assert len(names(root / "things")) == 4
    cache.put(KIND, "new", bytes(300))
    assert names(root / "things") == {"2", "3", "new"}
    cache.put(KIND, "huge", bytes(5000))
    assert names(root / "things") == {"huge"}


def test_what_a_writer_that_was_killed_left_behind_goes_in_time(root: Path) -> None:
    cache.put(KIND, "a", b"")
    (root / "things" / ".new-x").write_bytes(bytes(5000))
    os.utime(root / "things" / ".new-x", (1, 1))
    cache.put(KIND, "b", b"")
    assert names(root / "things") == {"a", "b"}


def test_writers_and_readers_at_once_see_whole_entries(root: Path) -> None:
    small = cache.Kind("things", 3)
    texts = [bytes([n]) * 50_000 for n in range(8)]

    def work(n: int) -> bytes | None:
        cache.put(small, str(n % 5), texts[n % 8])
        return cache.get(small, str((n + 1) % 5))

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(work, range(400)))
    assert found <= {None, *texts}
    assert len(found) > 1
    # Whoever trims last may have seen an entry that another put back.
    assert not [name for name in names(root / "things") if name.startswith(".new-")]


def test_the_documents_say_how_much_is_kept() -> None:
    text = (Path(__file__).parent.parent / "docs" / "hot.md").read_text()
    for kind in (kept_reports.REPORTS, nvdisasm.LISTINGS, build.CUBINS):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{kind.name}` |")]
        assert line.endswith(f"| {kind.entries} entries, {kind.size >> 20} MB |")


# ---- reports from the cache ------------------------------------------------------------------------------------------


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each child process that was started to read."""
    started: list[object] = []
    real = subprocess.Popen

    def popen(*args: object, **options: object) -> object:
        started.append(args)
        return real(*args, **options)

    monkeypatch.setattr(ncu_parse.subprocess, "Popen", popen)
    return started


@pytest.fixture
def report_file(capture: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(capture("kinds"), tmp_path / "kinds.ncu-rep"))


def entries(root: Path) -> list[Path]:
    return sorted((root / "reports").iterdir()) if (root / "reports").is_dir() else []


def fields_equal(a: object, b: object) -> None:
    """Equal field by field, in type and value; told apart by their text, NaN equals NaN."""
    assert type(a) is type(b)
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            fields_equal(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, dict):
        assert isinstance(b, dict)
        assert list(a) == list(b)
        for name, value in a.items():
            fields_equal(value, b[name])
    elif isinstance(a, tuple) and any(dataclasses.is_dataclass(x) for x in a):
        assert isinstance(b, tuple)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            fields_equal(x, y)
    else:
        assert repr(a) == repr(b)


REQUESTS = (
    {},
    {"metrics": {"gpu__time_duration.sum", OPCODES.name}},
    {"metrics": set()},
    {"instances": False},
    {"sources": False},
    {"instances": False, "sources": False},
)


def test_each_request_is_read_once_and_then_is_the_same_field_by_field(
    report_file: Path, children: list[object], root: Path
) -> None:
    first = [ncu_parse.load(report_file, **request) for request in REQUESTS]
    assert len(children) == len(REQUESTS) == len(entries(root))
    again = [ncu_parse.load(report_file, **request) for request in REQUESTS]
    assert len(children) == len(REQUESTS)
    for a, b in zip(first, again, strict=True):
        fields_equal(a, b)
    assert len({len(pickle.dumps(report)) for report in first}) > 3
    # The order in which metrics are named makes no other request.
    ncu_parse.load(report_file, metrics=(OPCODES.name, "gpu__time_duration.sum"))
    assert len(children) == len(REQUESTS)


def test_every_capture_comes_back_field_by_field(report_path: Path) -> None:
    first = ncu_parse.load(report_path, instances=False)
    fields_equal(ncu_parse.load(report_path, instances=False), first)


def test_the_path_is_the_one_asked_for_now(
    report_file: Path, children: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ncu_parse.load(report_file).path == str(report_file)
    copy = shutil.copy(report_file, tmp_path / "copy.ncu-rep")
    assert ncu_parse.load(copy).path == str(copy)
    monkeypatch.chdir(tmp_path)
    assert ncu_parse.load("copy.ncu-rep").path == "copy.ncu-rep"
    assert len(children) == 1


def test_other_bytes_are_read_anew(report_file: Path, children: list[object], capture: Callable[[str], Path]) -> None:
    kinds = ncu_parse.load(report_file)
    shutil.copy(capture("states_only"), report_file)
    other = ncu_parse.load(report_file)
    assert [x.kernel for x in other.launches] != [x.kernel for x in kinds.launches]
    shutil.copy(capture("kinds"), report_file)
    fields_equal(ncu_parse.load(report_file), kinds)
    assert len(children) == 2


def test_other_sources_of_ours_or_another_reader_read_anew(
    report_file: Path, children: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {path.name for path in kept_reports.MAKERS} == {
        "container.py", "model.py", "ncu_parse.py", "vocabulary.py",
    }  # fmt: skip
    ncu_parse.load(report_file)
    for n, maker in enumerate(kept_reports.MAKERS):
        changed = tmp_path / maker.name
        changed.write_bytes(maker.read_bytes() + b"# changed\n")
        makers = tuple(changed if path is maker else path for path in kept_reports.MAKERS)
        with monkeypatch.context() as patch:
            patch.setattr(kept_reports, "MAKERS", makers)
            ncu_parse.load(report_file)
            ncu_parse.load(report_file)
        assert len(children) == n + 2
    identity = kept_reports.reader_identity()
    assert identity is not None
    assert any("_ncu_report" in name for name, _, _ in identity)
    monkeypatch.setattr(kept_reports, "reader_identity", lambda: identity[1:])
    ncu_parse.load(report_file)
    assert len(children) == len(kept_reports.MAKERS) + 2


def test_the_readers_identity_is_its_files_and_none_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert kept_reports.reader_identity() is None
    module = tmp_path / "ncu_report.py"
    module.write_text("raise RuntimeError('imported')")
    os.utime(module, (5, 5))
    assert kept_reports.reader_identity() == [(str(module), 30, 5_000_000_000)]
    (tmp_path / "ncu_report").mkdir()
    for name in ("__init__.py", "_ncu_report.so"):
        (tmp_path / "ncu_report" / name).write_text(name)
    found = kept_reports.reader_identity()
    assert found is not None
    assert [Path(path).name for path, _, _ in found] == ["__init__.py", "_ncu_report.so"]


def test_a_damaged_entry_is_ignored_and_rewritten(report_file: Path, children: list[object], root: Path) -> None:
    report = ncu_parse.load(report_file)
    (entry,) = entries(root)
    whole = entry.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for n, damage in enumerate((b"", whole[:20], whole[:-1], bytes(flipped), whole + b"x", bytes(len(whole)))):
        entry.write_bytes(damage)
        fields_equal(ncu_parse.load(report_file), report)
        assert len(children) == n + 2
        assert entry.read_bytes() == whole
    ncu_parse.load(report_file)
    assert len(children) == n + 2


def test_an_entry_under_anothers_name_is_ignored(report_file: Path, children: list[object], root: Path) -> None:
    ncu_parse.load(report_file, instances=False)
    (one,) = entries(root)
    ncu_parse.load(report_file)
    (other,) = set(entries(root)) - {one}
    shutil.copy(one, other)
    assert any(m.instances for m in ncu_parse.load(report_file).launches[0].metrics.values())
    assert len(children) == 3


class Trap:
    """What a hostile entry would do."""

    ran = False

    def __reduce__(self) -> tuple[object, ...]:
        return (setattr, (Trap, "ran", True))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pickle.dumps(Trap()), id="a call"),
        pytest.param(pickle.dumps(Path("x")), id="a foreign class"),
        pytest.param(pickle.dumps(("profiler.model", ["no", "report"])), id="no report"),
        pytest.param(b"cprofiler.model\nmath\n.", id="a module of the model"),
        pytest.param(b"cprofiler.model\nmath.inf\n.", id="a name with a dot"),
        pytest.param(b"cprofiler.model\nWork\n.", id="a class of the model that is in no report"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_an_entry_of_foreign_making_is_refused(
    made: bytes, report_file: Path, children: list[object], root: Path
) -> None:
    report = ncu_parse.load(report_file, instances=False)
    (entry,) = entries(root)
    packed = zlib.compress(made)
    # With the right checksum: whoever could write it could make that, too.
    found = kept_reports.find(report_file, None, False, True)
    assert found is not None
    assert found.key == entry.name
    entry.write_bytes(found._checksum(packed) + packed)
    assert found.recall() is None
    fields_equal(ncu_parse.load(report_file, instances=False), report)
    assert len(children) == 2
    assert not Trap.ran
    assert found.recall() is not None


@posix
def test_an_entry_that_others_may_write_is_read_anew(report_file: Path, children: list[object], root: Path) -> None:
    ncu_parse.load(report_file)
    (entry,) = entries(root)
    entry.chmod(0o666)
    ncu_parse.load(report_file)
    assert len(children) == 2
    ncu_parse.load(report_file)
    assert len(children) == 2


def test_without_a_writable_cache_every_report_is_read(
    report_file: Path, children: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for value in (str(tmp_path / "file"), "off"):
        monkeypatch.setenv("CYINST_CACHE", value)
        fields_equal(ncu_parse.load(report_file), ncu_parse.load(report_file))
    assert len(children) == 4


def test_errors_and_reports_with_problems_are_never_kept(
    report_file: Path, children: list[object], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = tmp_path / "noise.ncu-rep"
    noise.write_bytes(b"NVR\0" + bytes(range(256)) * 10)
    cut = tmp_path / "cut.ncu-rep"
    data = report_file.read_bytes()
    cut.write_bytes(data[: len(data) * 11 // 12])
    for _ in range(2):
        with pytest.raises(ReportError):
            ncu_parse.load(noise)
        assert ncu_parse.load(cut).problems
    (tmp_path / "ncu_report.py").write_text("raise ImportError('no such library')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for _ in range(2):
        with pytest.raises(MissingToolError):
            ncu_parse.load(report_file)
    assert len(children) == 6
    assert entries(root) == []


def test_a_file_that_changed_since_it_was_hashed_is_not_kept(report_file: Path, root: Path) -> None:
    def touch() -> None:
        os.utime(report_file, (1, 1))

    def append() -> None:
        with report_file.open("ab") as file:
            file.write(b"\0")

    def replace() -> None:
        shutil.copy2(report_file, report_file.with_suffix(".new"))
        os.replace(report_file.with_suffix(".new"), report_file)

    report = ncu_parse.read(report_file, metrics=())
    pickled = pickle.dumps(report)
    for change in (touch, append, replace, report_file.unlink):
        entry = kept_reports.find(report_file, (), True, True)
        assert entry is not None
        entry.keep(report, pickled)
        assert [path.name for path in entries(root)] == [entry.key]
        entries(root)[0].unlink()
        change()
        entry.keep(report, pickled)
        assert entries(root) == [], change
    assert kept_reports.find(report_file, (), True, True) is None


def test_an_answer_that_is_too_large_is_not_kept(
    report_file: Path, children: list[object], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_reports, "MOST", 1000)
    for _ in range(2):
        ncu_parse.load(report_file)
    assert len(children) == 2
    assert entries(root) == []


def test_the_least_used_reports_go(report_file: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_reports, "REPORTS", cache.Kind("reports", 2))
    for name in ("a", "b", "c"):
        ncu_parse.load(report_file, metrics={name})
    assert len(entries(root)) == 1


def test_several_readers_of_one_report_at_once_agree(report_file: Path, root: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: ncu_parse.load(report_file, instances=False), range(6)))
    for report in reports:
        fields_equal(report, reports[0])
    assert len(entries(root)) == 1


def test_a_reading_from_the_cache_can_be_ended_like_any_other(report_file: Path) -> None:
    ncu_parse.load(report_file, instances=False)
    reading = ncu_parse.start(report_file, instances=False)
    reading.cancel()
    assert reading.result().launches
    reading.cancel()


def test_a_second_command_reads_no_report_and_says_the_same(report_file: Path, root: Path) -> None:
    command = [sys.executable, "-m", "profiler.cli", "report", str(report_file), "--format", "json"]

    def run() -> tuple[bytes, Path, os.stat_result]:
        said = subprocess.run(command, capture_output=True, check=True).stdout
        (entry,) = entries(root)
        return said, entry, entry.stat()

    said, entry, first = run()
    os.utime(entry, (1, 1))
    again, same, second = run()
    assert (again, same) == (said, entry)
    # It was of use, and is the file of the first run: an answer of a child would have replaced it.
    assert second.st_ino == first.st_ino
    assert second.st_mtime > 1
