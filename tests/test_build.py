"""Sources become cubins: the command line, the cache, and what a compiler refuses, in one line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profiler import build, cache, elf
from profiler.build import CompilerError, architecture, command_line, first_error, included
from profiler.errors import MissingToolError, SpecimenError
from profiler.lines import line_tables
from profiler.specimen import CudaSource

SAXPY = """#include "scale.cuh"
extern "C" __global__ void saxpy(float* y, const float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += scale(a, x[i]);
}
"""
SCALE = "__device__ inline float scale(float a, float x) { return a * x; }\n"
needs_nvcc = pytest.mark.skipif(
    build.find_nvcc() is None or shutil.which("g++") is None,
    reason="needs nvcc (pip install nvidia-cuda-nvcc) and g++, to compile a kernel",
)


class FakeNvrtc:
    """NVRTC that counts, and whose cubin tells what it was asked."""

    version = "13.0"

    def __init__(self, log: str | None = None) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.log = log

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        self.asked.append((name, list(options)))
        if self.log is not None:
            raise CompilerError(self.log)
        return b"\x7fELF" + text.encode()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CudaSource:
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "scale.cuh").write_text(SCALE)
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    return CudaSource(tmp_path / "saxpy.cu", ("saxpy",))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_nvcc", lambda: None)


def test_the_command_line_is_this() -> None:
    line = command_line("nvcc", Path("k/q6k.cu"), "sm_90a", ("-DKD=8", "-use_fast_math"), Path("out/q6k.cubin"))
    assert " ".join(line) == (
        "nvcc -cubin -arch=sm_90a -lineinfo -std=c++17 -DKD=8 -use_fast_math -o out/q6k.cubin k/q6k.cu"
    )


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 3), "sm_103a"),
     ((12, 0), "sm_120a")],
)  # fmt: skip
def test_chips_from_hopper_on_have_features_of_their_own(capability: tuple[int, int], arch: str) -> None:
    assert architecture(*capability) == arch


@pytest.mark.usefixtures("no_nvcc")
def test_nvrtc_gets_the_kept_source_and_every_folder_of_its_includes(source: CudaSource, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "scale.cuh").write_text('#include "deep/inner.cuh"\n' + SCALE)
    (tmp_path / "deep" / "inner.cuh").write_text('#pragma once\n#include "../scale.cuh"\n')
    nvrtc = FakeNvrtc()
    cubin = build.build(CudaSource(source.path, source.entries, ("-DKD=4",)), "sm_90a", nvrtc)
    assert cubin.read_bytes() == b"\x7fELF" + SAXPY.encode()
    ((name, options),) = nvrtc.asked
    assert name == str(source.path.resolve())
    assert options == [
        "--gpu-architecture=sm_90a", "-lineinfo", "-std=c++17",
        f"--include-path={tmp_path.resolve()}", f"--include-path={(tmp_path / 'deep').resolve()}", "-DKD=4",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_nvcc")
def test_the_cache_knows_every_text_that_counts(source: CudaSource, tmp_path: Path) -> None:
    nvrtc = FakeNvrtc()

    def compiled_anew(change: Callable[[], object], wanted: CudaSource = source, arch: str = "sm_90a") -> bool:
        change()
        before = len(nvrtc.asked)
        first = build.build(wanted, arch, nvrtc)
        assert build.build(wanted, arch, nvrtc) == first
        assert len(nvrtc.asked) - before in (0, 1)
        return len(nvrtc.asked) > before

    def nothing() -> None: ...

    header, inner = tmp_path / "scale.cuh", tmp_path / "inner.cuh"
    assert compiled_anew(nothing)
    assert not compiled_anew(nothing)
    assert not compiled_anew(lambda: source.path.write_text(SAXPY))
    assert compiled_anew(lambda: source.path.write_text(SAXPY + "// more\n"))
    assert compiled_anew(lambda: header.write_text(SCALE + '#include "inner.cuh"\n'))
    # What is included by what is included; it appears, then changes, then goes back.
    assert compiled_anew(lambda: inner.write_text("// one\n"))
    assert compiled_anew(lambda: inner.write_text("// two\n"))
    assert not compiled_anew(lambda: inner.write_text("// one\n"))
    assert compiled_anew(nothing, CudaSource(source.path, source.entries, ("-DKD=4",)))
    assert compiled_anew(nothing, arch="sm_120a")
    assert compiled_anew(lambda: setattr(nvrtc, "version", "13.1"))
    other = tmp_path / "copy.cu"
    # The same text elsewhere: its line table must name the file that is there.
    assert compiled_anew(lambda: other.write_text(source.path.read_text()), CudaSource(other, source.entries))


@pytest.mark.usefixtures("no_nvcc")
def test_a_damaged_entry_is_compiled_again(source: CudaSource) -> None:
    nvrtc = FakeNvrtc()
    cubin = build.build(source, "sm_90a", nvrtc)
    cubin.write_bytes(b"")
    assert build.build(source, "sm_90a", nvrtc) == cubin
    assert cubin.read_bytes().startswith(b"\x7fELF")
    assert len(nvrtc.asked) == 2


@pytest.mark.usefixtures("no_nvcc")
def test_a_failure_leaves_nothing_behind(source: CudaSource, tmp_path: Path) -> None:
    log = f'{source.path.resolve()}(4): error: identifier "scale" is undefined\n\n1 error detected in the compilation'
    with pytest.raises(SpecimenError) as caught:
        build.build(source, "sm_90a", FakeNvrtc(log))
    assert str(caught.value) == f'{source.path}:4: identifier "scale" is undefined'
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.usefixtures("no_nvcc")
def test_a_cache_that_cannot_be_written_costs_time_alone(
    source: CudaSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where a folder should be")
    nvrtc = FakeNvrtc()
    for value in (str(blocked), "off"):
        monkeypatch.setenv("CYINST_CACHE", value)
        cubin = build.build(source, "sm_90a", nvrtc)
        assert cubin.read_bytes().startswith(b"\x7fELF")
        # This process needs it once.
        assert build.build(source, "sm_90a", nvrtc) == cubin
    assert len(nvrtc.asked) == 1
    assert blocked.is_file()
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("no_nvcc")
def test_the_oldest_cubins_go(source: CudaSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CUBINS", cache.Kind("cubins", 10))
    made = [build.build(CudaSource(source.path, (), (f"-DN={n}",)), "sm_90a", FakeNvrtc()) for n in range(12)]
    kept = set((tmp_path / "cache" / "cubins").iterdir())
    assert len(kept) <= 10
    assert made[-1] in kept


@pytest.mark.usefixtures("no_nvcc")
def test_no_compiler_is_told_with_the_remedy(source: CudaSource) -> None:
    with pytest.raises(MissingToolError, match="there is no nvcc; pip install nvidia-cuda-nvcc"):
        build.build(source, "sm_90a")


def test_nvcc_without_a_host_compiler_gives_way_to_nvrtc(
    source: CudaSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(nvcc.parent))
    assert build.find_nvcc() == str(nvcc)
    nvrtc = FakeNvrtc()
    build.build(source, "sm_90a", nvrtc)
    assert len(nvrtc.asked) == 1
    with pytest.raises(MissingToolError, match=r"nvcc is here but not g\+\+"):
        build.build(source, "sm_90a")


def test_nvcc_is_looked_for_in_the_toolkits_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    for name, other in (("CUDA_HOME", "CUDA_PATH"), ("CUDA_PATH", "CUDA_HOME")):
        monkeypatch.setenv(name, str(tmp_path / "toolkit"))
        monkeypatch.delenv(other, raising=False)
        assert build.find_nvcc() == str(nvcc)


def test_a_missing_source_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecimenError, match=r"nothing\.cu: there is no such CUDA source"):
        build.build(CudaSource(tmp_path / "nothing.cu", ()), "sm_90a", FakeNvrtc())


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ('/a/k.cu(3): error: expected a ";"\n/a/k.cu(9): error: x\n2 errors', '/a/k.cu:3: expected a ";" (and 1 more)'),
        ("/a/k.cuh(7): catastrophic error: cannot open", "/a/k.cuh:7: cannot open"),
        ('k.cu(1): error #20: identifier "a" is undefined', '/a/k.cu(1): error: no'),
        ("/a/k.cu:3:10: fatal error: nope.cuh: No such file or directory", "/a/k.cu:3: nope.cuh: No such file"),
        (
            "ptxas error   : Entry function 'k' uses too much shared data",
            "a/k.cu: does not compile for sm_90a: Entry function 'k' uses too much shared data",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'sm_99'", "Unsupported gpu architecture 'sm_99'"),
        ("Killed", "a/k.cu: does not compile for sm_90a: Killed"),
        ("", "a/k.cu: does not compile for sm_90a: the compiler said nothing"),
    ],
)  # fmt: skip
def test_the_first_error_of_a_log(log: str, told: str) -> None:
    said = first_error(log, Path("a/k.cu"), "sm_90a")
    assert "\n" not in said
    if "#20" in log:
        told = 'k.cu:1: identifier "a" is undefined'
    assert told in said


def test_includes_are_followed_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.cu").write_text(
        '#include "a.cuh"\n  #  include "sub/b.cuh" // b\n#include <cuda_fp16.h>\n'
        '// #include "c.cuh"\n#include "no.cuh"\n'
    )
    (tmp_path / "a.cuh").write_text('#include "main.cu"\n')
    (tmp_path / "sub" / "b.cuh").write_text('#include "../a.cuh"\n#include "d.cuh"\n')
    (tmp_path / "c.cuh").write_text("")
    (tmp_path / "option").mkdir()
    (tmp_path / "option" / "d.cuh").write_text("")
    found = {path.name for path in included(tmp_path / "main.cu", ("-DX", "-Ioption"))}
    assert found == {"a.cuh", "b.cuh", "d.cuh", "main.cu"}


@needs_nvcc
def test_nvcc_compiles_with_lines_of_the_kept_source(source: CudaSource) -> None:
    cubin = build.build(source, "sm_90a")
    assert cubin.name.startswith("saxpy-sm_90a-")
    image = elf.parse(cubin.read_bytes())
    assert image.sm == 90
    assert [section.name for section in image.code_sections] == [".text.saxpy"]
    files = {f.file for table in line_tables(image).values() for stack in table.stacks for f in stack}
    assert files == {str(source.path.resolve())}
    assert build.build(source, "sm_90a") == cubin


@needs_nvcc
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'extern "C" __global__ void k(float* y) {\n  y[0] = a;\n  y[1] = b;\n}\n',
            r':2: identifier "a" is undefined \(and 1 more\)',
        ),
        ('#include "nope.cuh"\n', r":1: nope\.cuh: No such file"),
        ('extern "C" __global__ void k(int* y) { asm("mma.foo;"); }\n', r": does not compile for sm_80: "),
    ],
)  # fmt: skip
def test_what_nvcc_refuses_is_told_in_one_line(source: CudaSource, tmp_path: Path, text: str, told: str) -> None:
    source.path.write_text(text)
    with pytest.raises(SpecimenError) as caught:
        build.build(source, "sm_80")
    assert re.match(re.escape(str(source.path)) + told, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
