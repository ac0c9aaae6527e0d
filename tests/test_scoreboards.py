"""The control words mean what we read: compiled code waits for every scoreboard before it uses what was guarded.

tests/kernels/scoreboards.cu is compiled for every architecture that nvcc knows. If the fields were read from other
bits, or a branch or a register were read wrongly, the compiler's own code would seem to use results too early.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from scoreboard_walk import Program, described, used_too_early, walk

from profiler import elf, nvdisasm, sass
from profiler.code import Control, Function
from profiler.defuse import PREDICATE
from profiler.lines import line_tables

SOURCE = Path(__file__).resolve().parent / "kernels" / "scoreboards.cu"
FIRST_SM = 75

# What answers after a time that the hardware does not fix, by the pipeline that answers in order.
SHARED = "LDS LDSM ATOMS"
TRANSCENDENTAL = "MUFU FLO POPC BREV F2F F2I I2F FRND FCHK"
CONSTANT = "LDC LDCU"
DOUBLE = "DADD DMUL DFMA DSETP"
ALONE = "LDG LD LDL ATOM ATOMG SHFL S2R S2UR R2UR REDUX"
# There double precision runs at full rate, and its latency is fixed.
FULL_RATE_DOUBLES = (90, 107)


def find_nvcc() -> Path | None:
    """The compiler of the nvidia-cuda-nvcc wheel, or else the one on PATH."""
    wheels = [p for root in sys.path for p in sorted(Path(root or ".").glob("nvidia/cu*/bin/nvcc"))]
    on_path = shutil.which("nvcc")
    return next(iter([*wheels, *([Path(on_path)] if on_path else [])]), None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Path]]]:
    """``built()`` compiles the kernels for each architecture from sm_75 on; with an option, for the newest alone."""
    nvcc = find_nvcc()
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install nvidia-cuda-nvcc) and g++, to compile kernels for every architecture")
    folder = tmp_path_factory.mktemp("cubins")
    # Nothing of a CUDA toolkit that may be installed beside the wheel: only the host compiler is on this PATH.
    (folder / "host").mkdir()
    for name in ("gcc", "g++", "cpp", "as", "ld", "sh", "rm", "cat"):
        if (found := shutil.which(name)) is not None:
            (folder / "host" / name).symlink_to(found)
    environment = {"PATH": f"{nvcc.parent}{os.pathsep}{folder / 'host'}", "TMPDIR": str(folder)}

    def run(*options: str) -> str:
        done = subprocess.run([str(nvcc), *options], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    names = [name for name in run("--list-gpu-code").split() if int(name[3:].rstrip("af")) >= FIRST_SM]

    @cache
    def build(*options: str) -> list[Path]:
        def one(name: str) -> Path:
            cubin = folder / f"{name}{''.join(options)}.cubin"
            run("-cubin", f"-arch={name}", *options, "-o", str(cubin), str(SOURCE))
            return cubin

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, names if not options else [max(names, key=lambda x: int(x[3:].rstrip("af")))]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CYINST_CACHE", str(folder / "cache"))
        yield build


def programs_of(cubin: Path) -> list[Program]:
    image = elf.parse(cubin.read_bytes())
    listing = nvdisasm.disassemble(image.data, [])
    assert listing.problem is None
    tables = line_tables(image)
    sections = image.code_sections
    frames = [tables[s.index].frames_at if s.index in tables else None for s in sections]
    parts = sass.parse(listing.text, [image.content(s) for s in sections], frames)
    assert [p.section for p in parts] == [s.name for s in sections]
    return [Program(image.sm, Function(p.section, None, p.instructions, p.branch_targets, p.functions)) for p in parts]


@pytest.fixture(scope="module")
def programs(built: Callable[..., list[Path]]) -> list[Program]:
    with ThreadPoolExecutor(2) as pool:
        return [program for found in pool.map(programs_of, built()) for program in found]


def test_every_architecture_is_there_and_every_kind_of_producer(programs: list[Program]) -> None:
    kinds: dict[int, set[str]] = {}
    for program in programs:
        for position, instruction in enumerate(program.code):
            if program.control(position).write_barrier is not None:
                kinds.setdefault(program.sm, set()).add(instruction.base)
    assert {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121} <= set(kinds)
    for sm, found in kinds.items():
        wanted = {"LDG", "LDS", "MUFU", "SHFL", "ATOMG", "ATOMS", "F2I", "I2F", "LDL", "S2R", "POPC", "FLO"}
        assert wanted | ({"LDSM"} if sm >= 80 else set()) <= found, sm
        assert ("DFMA" in found) == (sm not in FULL_RATE_DOUBLES), sm


def test_no_path_uses_a_result_or_overwrites_an_operand_before_waiting_for_its_scoreboard(
    programs: list[Program],
) -> None:
    early = [described(program, pair) for program in programs for pair in used_too_early(program)]
    assert not early, f"{len(early)}, the first: {early[:4]}"
    guarded = sum(bool(program.control(n).sets) for program in programs for n in range(len(program.code)))
    assert guarded > 3000


def test_a_result_without_a_scoreboard_is_covered_by_a_later_one_of_the_same_pipeline(programs: list[Program]) -> None:
    pipelines = {
        name: frozenset(names.split()) for names in (SHARED, TRANSCENDENTAL, CONSTANT) for name in names.split()
    }
    pipelines |= {name: frozenset({name}) for name in ALONE.split()}
    doubles = {name: frozenset(DOUBLE.split()) for name in DOUBLE.split()}
    early, covered = [], Counter[str]()
    for program in programs:
        of_base = pipelines | ({} if program.sm in FULL_RATE_DOUBLES else doubles)
        for position, instruction in enumerate(program.code):
            result = program.writes[position]
            if instruction.base not in of_base or not result or program.control(position).write_barrier is not None:
                continue
            covered[instruction.base] += 1
            pairs = walk(
                program, position, 0, lambda n, g=result, p=program: g & (p.reads[n] | p.writes[n]),
                of_base[instruction.base],
            )  # fmt: skip
            early += [described(program, pair) for pair in pairs]
    assert not early, f"{len(early)}, the first: {early[:4]}"
    # It happens, and not to loads from global memory.
    assert covered["LDS"]
    assert not covered.keys() & set(ALONE.split())


def test_dependent_float_arithmetic_is_four_cycles_apart_by_the_stall_counts(programs: list[Program]) -> None:
    shortest: dict[int, int] = {}
    for program in programs:
        for position, instruction in enumerate(program.code):
            if instruction.base in ("FFMA", "FADD", "FMUL"):
                result = frozenset(r for r in program.writes[position] if r < PREDICATE)
                found = cycles_to_use(program, position, result)
                if found is not None:
                    shortest[program.sm] = min(found, shortest.get(program.sm, found))
    # Four cycles since Volta ("Tuning CUDA Applications for Volta"), and the compiler uses every one.
    assert set(shortest.values()) == {4}


def cycles_to_use(program: Program, start: int, result: frozenset[int], most: int = 6) -> int | None:
    """Issue cycles from an instruction to the nearest reader of its result, None when it is farther than ``most``."""
    work = [(n, max(1, program.control(start).stall)) for n in program.successors[start]]
    found: list[int] = []
    while work:
        position, cycles = work.pop()
        if cycles > most:
            continue
        if program.reads[position] & result:
            found.append(cycles)
        elif not program.writes[position] & result:
            work += [(n, cycles + max(1, program.control(position).stall)) for n in program.successors[position]]
    return min(found, default=None)


@pytest.mark.parametrize(
    "misread",
    [
        lambda c: replace(c, wait_mask=c.wait_mask << 1 & 63),
        lambda c: replace(c, wait_mask=c.wait_mask >> 1),
        lambda c: replace(c, write_barrier=c.read_barrier, read_barrier=c.write_barrier),
        lambda c: replace(c, write_barrier=None if c.write_barrier is None else c.write_barrier ^ 1),
    ],
)
def test_reading_a_field_from_its_neighbours_bits_would_not_go_unnoticed(
    misread: Callable[[Control], Control], programs: list[Program]
) -> None:
    wrong: Counter[int] = Counter()
    for program in programs:
        code = tuple(replace(i, control=misread(program.control(n))) for n, i in enumerate(program.code))
        other = Program(program.sm, replace(program.function, instructions=code))
        wrong[program.sm] += sum(1 for _ in used_too_early(other))
    assert min(wrong.values()) > 3


def test_debug_builds_have_no_controls_and_line_tables_name_what_was_inlined(built: Callable[..., list[Path]]) -> None:
    for cubin in built("-G"):
        for program in programs_of(cubin):
            assert {i.control for i in program.code} == {None}
            assert not program.function.has_control
    for cubin in built("-lineinfo"):
        kernels = {p.function.name: p.function for p in programs_of(cubin)}
        calls = kernels[".text.calls"]
        assert [name for _, name in calls.inner if "called" in name]
        files = {Path(f.file).name for i in calls.instructions for f in i.frames}
        assert SOURCE.name in files
