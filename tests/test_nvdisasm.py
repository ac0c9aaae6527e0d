"""Finding nvdisasm, what its refusals become, and the cache of its listings."""

from __future__ import annotations

import gzip
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profiler import cache, nvdisasm
from profiler.cubin import code_of, load_code
from profiler.errors import MissingToolError
from profiler.model import LaunchProfile, Report


@pytest.fixture(scope="module")
def wide(demo_paths: tuple[Path, Path], load_once: Callable[[Path], Report]) -> tuple[bytes, LaunchProfile]:
    """The bytes and the launch of the demo with wide loads."""
    return demo_paths[1].read_bytes(), load_once(demo_paths[1]).launches[0]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """Every command line that is started, with an empty cache."""
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "kept"))
    commands: list[Sequence[str]] = []
    run = nvdisasm.subprocess.run
    monkeypatch.setattr(nvdisasm.subprocess, "run", lambda c, **k: commands.append(c) or run(c, **k))
    return commands


def test_nvdisasm_is_started_once_for_all_launches_of_a_module_and_never_again(
    starts: list[Sequence[str]], capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    launches = load_once(capture("kinds")).launches
    first = load_code(capture("kinds"), launches)
    assert len(starts) == 1
    assert starts[0][1:4] == ["-c", "-gi", "-fun"]
    assert starts[0][4].count(",") == len({x.mangled for x in launches}) - 1
    assert load_code(capture("kinds"), launches) == first
    assert len(starts) == 1
    # Other functions of the cubin are another request.
    code_of(capture("kinds"), launches[0])
    assert len(starts) == 2


def test_a_damaged_cache_entry_is_ignored_and_rewritten(
    starts: list[Sequence[str]], wide: tuple[bytes, LaunchProfile], tmp_path: Path
) -> None:
    code = code_of(*wide)
    (entry,) = (tmp_path / "kept").rglob("*.gz")
    whole = entry.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    damages = (whole[: len(whole) // 2], gzip.compress(b"nothing"), bytes(flipped))
    for n, damage in enumerate(damages):
        entry.write_bytes(damage)
        assert code_of(*wide) == code
        assert len(starts) == n + 2
        assert gzip.decompress(entry.read_bytes()) == gzip.decompress(whole)
    assert code_of(*wide) == code
    assert len(starts) == len(damages) + 1


def test_a_cache_that_cannot_be_written_is_no_error(
    starts: list[Sequence[str]], wide: tuple[bytes, LaunchProfile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "file"))
    assert code_of(*wide).functions
    assert len(starts) == 1


def test_the_oldest_listings_go_when_there_are_too_many(
    starts: list[Sequence[str]], capture: Callable[[str], Path], load_once: Callable[[Path], Report],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(nvdisasm, "LISTINGS", cache.Kind("nvdisasm", 2))
    launches = {launch.mangled: launch for launch in load_once(capture("kinds")).launches}
    assert len(launches) > 2
    for launch in launches.values():
        code_of(capture("kinds"), launch)
    assert len(list((tmp_path / "kept").rglob("*.gz"))) <= 2
    code_of(capture("kinds"), launch)
    assert len(starts) == len(launches)


def test_with_the_cache_off_nvdisasm_is_always_started(
    starts: list[Sequence[str]], wide: tuple[bytes, LaunchProfile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYINST_CACHE", "off")
    assert code_of(*wide) == code_of(*wide)
    assert len(starts) == 2
    assert not (tmp_path / "kept").exists()


def test_without_nvdisasm_the_error_names_the_remedy(
    wide: tuple[bytes, LaunchProfile], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert nvdisasm.find_tools() == []
    with pytest.raises(MissingToolError, match="pip install nvidia-cuda-nvdisasm"):
        code_of(*wide)


def a_tool(folder: Path, script: str, identity: str) -> nvdisasm.Tool:
    path = folder / f"nvdisasm-{identity}"
    path.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return nvdisasm.Tool(str(path), identity)


@pytest.mark.skipif(sys.platform == "win32", reason="scripts stand in for nvdisasm")
@pytest.mark.parametrize(
    ("scripts", "text", "problem"),
    [
        # A new nvdisasm has dropped the architecture, an older one on PATH knows it.
        (['sys.exit(\'nvdisasm fatal   : CUDA architecture "SM70" is deprecated. Please\')', "print('.section')"],
         ".section\n", None),
        (["sys.exit('nvdisasm fatal   : CUDA architecture is deprecated')"], "",
         "nvdisasm cannot disassemble it: CUDA architecture is deprecated"),
        (["'-gi' in sys.argv and sys.exit('bad lines')\nprint('.section')"], ".section\n",
         "no source lines: its line table cannot be read"),
        (["sys.exit('nvdisasm warning : hm\\nnvdisasm error   : Bad thing.\\n')", "print('.section')"], "",
         "nvdisasm cannot disassemble it: Bad thing"),
        (["import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"], "",
         "nvdisasm cannot disassemble it: killed by signal 9, without a word"),
        (["import time\ntime.sleep(60)"], "", "nvdisasm did not finish within 1 s"),
        ([""], "", "nvdisasm cannot disassemble it: exit code 0, without a word"),
    ],
)  # fmt: skip
def test_what_nvdisasm_refuses_is_a_problem(
    scripts: Sequence[str], text: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [a_tool(tmp_path, script, str(n)) for n, script in enumerate(scripts)]
    monkeypatch.setattr(nvdisasm, "find_tools", lambda: tools)
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "kept"))
    found = nvdisasm.disassemble(b"image", [3, 1], timeout=1)
    assert (found.text, found.problem) == (text, problem)
    # Only a listing without a problem is kept.
    assert len(list((tmp_path / "kept").rglob("*.gz"))) == (problem is None)


def test_a_program_that_cannot_be_started_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdisasm, "find_tools", lambda: [nvdisasm.Tool(str(tmp_path), "folder")])
    assert "cannot be started" in (nvdisasm.disassemble(b"", []).problem or "")


def test_wheels_come_before_the_path_and_newer_before_older(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    places = ("nvidia/cuda_nvdisasm/bin/nvdisasm", "nvidia/cu12/bin/nvdisasm", "nvidia/cu13/bin/nvdisasm", "p/nvdisasm")
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
        (tmp_path / place).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "p"))
    found = nvdisasm.find_tools([str(tmp_path)])
    assert [Path(t.path).relative_to(tmp_path).as_posix() for t in found] == [
        places[2],
        places[1],
        places[0],
        places[3],
    ]
    size_and_time = found[0].identity
    (tmp_path / "nvidia_cuda_nvdisasm-13.5.37.dist-info").mkdir()
    first, *_, last = nvdisasm.find_tools([str(tmp_path)])
    assert first.identity == "nvidia_cuda_nvdisasm-13.5.37" != size_and_time
    assert last.identity.startswith("0-")
