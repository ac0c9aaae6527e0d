"""The line table: the stacks that nvdisasm prints, and the names that it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profiler import elf, nvdisasm, sass
from profiler.code import Frame, Instruction
from profiler.container import read_modules
from profiler.lines import line_tables, plain_name


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_the_line_table_says_what_nvdisasm_prints_but_for_contexts_that_nvdisasm_overlooks(
    demo_paths: Sequence[Path], capture: Callable[[str], Path]
) -> None:
    overlooked = 0
    for path in (*demo_paths, capture("kinds")):
        (module,) = read_modules(path.read_bytes()).modules
        image = elf.parse(module.binary)
        tables = line_tables(image)
        for section, part in zip(
            image.code_sections, sass.parse(nvdisasm.disassemble(image.data, []).text), strict=True
        ):
            before: tuple[tuple[str, int], ...] = ()
            for instruction in part.instructions:
                ours = tuple((f.file, f.line) for f in tables[section.index].frames_at(instruction.offset))
                theirs = tuple((f.file, f.line) for f in instruction.frames)
                if ours != theirs:
                    # Only the callers differ, where the innermost line stayed and so the printed stack did.
                    assert (ours[0], theirs) == (theirs[0], before)
                    overlooked += 1
                before = theirs
    assert overlooked == 3


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("stage", "stage"), ("_Z7stage_av", "stage_a"), ("_ZN3cub4warp4scanIiEEvT_", "cub::warp::scan"),
        ("_ZNK2at6native3fooIfLi4ELb1ENS_4EnumES1_EclERKT2_i", "at::native::foo"),
        ("_ZN35_INTERNAL_2e2c1564_6_q6k_cu_mmq_q6k12__half2floatE6__half", "__half2float"),
        ("_ZN12_GLOBAL__N_13barEv", "(anonymous)::bar"), ("_ZN1aI1bIcLi12EES2_T0_E4nameEv", "a::name"),
        ("_ZL5localv", "local"), ("_Z", "_Z"), ("_ZN", "_ZN"), ("_Z99short", "_Z99short"),
        ("_ZNSt6vectorIiE4sizeEv", "std::vector::size"), ("_ZSt4sqrtf", "std::sqrt"), ("_ZSt", "_ZSt"),
    ],
)  # fmt: skip
def test_mangled_names_are_read_as_far_as_they_are_understood(mangled: str, plain: str) -> None:
    assert plain_name(mangled) == plain


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (("/usr/local/cuda/targets/x86_64-linux/include/sm_32_intrinsics.hpp", "/home/me/k.cuh", "/home/me/k.cu"), 1),
        (("/usr/local/cuda-13.0/include/cuda_fp16.hpp", "k.cu"), 1),
        ((r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.4\include\cuda_fp16.hpp", r"D:\k.cu"), 1),
        (("/home/me/cuda/gemm/include/tile.cuh", "/home/me/k.cu"), 0),
        (("/usr/local/cuda/include/cuda_fp16.hpp",), 0),
    ],
)
def test_a_toolkit_header_gives_way_to_the_line_that_called_it(files: tuple[str, ...], shown: int) -> None:
    frames = tuple(Frame(file, line) for line, file in enumerate(files, 1))
    instruction = Instruction(0, 0, None, "LDG.E", (), None, frames)
    assert instruction.frame == frames[shown]
    assert Instruction(0, 0, None, "LDG.E", (), None).frame is None
