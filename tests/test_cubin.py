"""The code of every launch is the code that ran: PCs, opcode counts, lines; and what happens when it cannot be had."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from made_up_reports import EXECUTED, FUNCTION_PCS, a_launch, a_report
from scoreboard_walk import Program, described, used_too_early

from profiler import container, cubin, elf, nvdisasm
from profiler.code import INSTRUCTION_BYTES, Code
from profiler.container import read_modules
from profiler.cubin import code_of, load_code
from profiler.errors import ReportError
from profiler.lines import line_tables
from profiler.model import LaunchProfile, Report

PER_OPCODE = "sass__inst_executed_per_opcode_with_modifier_all"
# nvdisasm of CUDA 13 says so of Volta.
REFUSED = "is deprecated"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own, so that no run depends on an earlier one."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CYINST_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def wide(demo_paths: tuple[Path, Path], load_once: Callable[[Path], Report]) -> tuple[bytes, LaunchProfile]:
    """The bytes and the launch of the demo with wide loads."""
    return demo_paths[1].read_bytes(), load_once(demo_paths[1]).launches[0]


def executed(launch: LaunchProfile) -> dict[int, int]:
    found = launch.instances(EXECUTED)
    return {} if found is None else {int(pc): int(n) for pc, n in found.by_id().items()}


def by_opcode(launch: LaunchProfile, code: Code) -> Counter[str]:
    """Executed instructions by opcode, counted through the code; those at no instruction under ``nowhere``."""
    counts: Counter[str] = Counter()
    for pc, count in executed(launch).items():
        found = code.find(pc)
        counts["nowhere" if found is None else found[1].opcode] += count
    return +counts


def check_launch(launch: LaunchProfile, code: Code) -> str:
    """Compare one launch with its report; return what could be compared."""
    kernel, *others = code.functions.values()
    assert kernel.name == launch.mangled
    assert kernel.address is not None
    assert list(code.functions) == [f.name for f in (kernel, *others)]
    assert code.problems == ()
    for function in (kernel, *others):
        assert [i.offset for i in function.instructions] == list(range(0, function.size, INSTRUCTION_BYTES))
        assert [i.index for i in function.instructions] == list(range(len(function.instructions)))
    bases = launch.instances(FUNCTION_PCS)
    if bases is not None:
        assert {int(pc) for pc in bases.values if isinstance(pc, int | float)} <= {f.address for f in (kernel, *others)}
    outside = [hex(pc) for pc in executed(launch) if code.find(pc) is None]
    assert not outside
    opcodes = launch.instances(PER_OPCODE)
    if opcodes is None or not executed(launch):
        return "no counts per PC" if not executed(launch) else "no counts per opcode"
    theirs = +Counter({str(name): int(n) for name, n in opcodes.by_id().items()})
    assert by_opcode(launch, code) == theirs
    return "equal"


def load_all(paths: Sequence[Path], load_once: Callable[[Path], Report]) -> list[dict[int, Code]]:
    """The code of all launches of some reports, two nvdisasm at a time."""
    reports = [load_once(path) for path in paths]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda report: load_code(report.path, report.launches), reports))


def test_every_launch_of_our_own_reports_is_made_of_the_opcodes_that_it_executed(
    demo_paths: Sequence[Path], capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    compared = 0
    paths = [*demo_paths, *sorted(capture("kinds").parent.glob("*.ncu-rep"))]
    for path, codes in zip(paths, load_all(paths, load_once), strict=True):
        for launch in load_once(path).launches:
            code = codes[launch.index]
            if launch.workload == "kernel":
                compared += check_launch(launch, code) == "equal"
            else:
                assert not code.functions
                assert code.problems == (f"a {launch.workload} has no code of its own: it holds several kernels",)
    assert compared == 10


def test_every_launch_of_the_corpus_is_made_of_the_opcodes_that_it_executed(
    corpus_files: Sequence[Path], load_once: Callable[[Path], Report]
) -> None:
    readable = [path for path in corpus_files if path.stat().st_size]
    outcomes: Counter[str] = Counter()
    programs: dict[tuple[str, str], Program] = {}
    for path, of_launch in zip(readable, load_all(readable, load_once), strict=True):
        for launch in load_once(path).launches:
            code = of_launch[launch.index]
            if any(REFUSED in problem for problem in code.problems):
                assert code.sm < 75, path.name
                outcomes[f"sm_{code.sm} is refused by nvdisasm"] += 1
                continue
            assert code.sm >= 75, path.name
            outcomes[check_launch(launch, code)] += 1
            programs |= {(code.digest, f.name): Program(code.sm, f) for f in code.functions.values() if f.has_control}
    early = [described(program, pair) for program in programs.values() for pair in used_too_early(program)]
    assert not early, f"{len(early)}, the first: {early[:4]}"
    # With -s: what was compared, and why the others could not be.
    print(f"{len(readable)} reports, {len(programs)} functions: {dict(outcomes)}")
    assert outcomes["equal"]


def test_the_demo_has_the_functions_that_its_lines_were_inlined_from(wide: tuple[bytes, LaunchProfile]) -> None:
    code = code_of(*wide)
    assert (code.sm, list(code.functions)) == (90, ["mmq_q6k"])
    kernel = code.functions["mmq_q6k"]
    assert kernel.has_control
    names = Counter(frame.function for i in kernel.instructions for frame in i.frames)
    assert {"stage_a", "stage_b", "mma16816"} <= set(names)
    # The kernel's own line is outermost and lies in no inlined function.
    assert {i.frames[-1].function for i in kernel.instructions} == {None}
    assert all(frame.function is not None for i in kernel.instructions for frame in i.frames[:-1])


def test_captures_of_one_program_have_one_digest(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    names = ("kinds", "basic", "cache_none", "application_replay", "duration_only")
    found = {code_of(p, load_once(p).launches[0]).digest for p in map(capture, names)}
    assert len(found) == 1


# --- made-up reports: modules, references, addresses


@pytest.fixture(scope="module")
def fixture_module(capture: Callable[[str], Path]) -> container.Module:
    """The module of tests/captures/fixture.cu."""
    return read_modules(capture("kinds").read_bytes()).modules[0]


def test_entries_of_one_module_are_merged_and_the_binary_may_come_with_any(
    fixture_module: container.Module,
) -> None:
    name, address, symbol = "_Z5saxpyifPKfPf", 0x1000, dict(fixture_module.functions)["_Z5saxpyifPKfPf"][1]
    data = a_report(
        [{"reference": 7, "loaded": [("a", 1, 2)]}, {"reference": 7, "binary": fixture_module.binary},
         {"reference": 7, "loaded": [(name, address, symbol)]}],
        [(name, 7)],
    )  # fmt: skip
    index = read_modules(data)
    (module,) = index.modules
    assert (module.reference, module.binary, module.sm) == (7, fixture_module.binary, 90)
    assert module.functions == {"a": (1, 2), name: (address, symbol)}
    assert [(r.mangled, r.references) for r in index.results] == [(name, (7,))]
    assert index.problems == ()


def test_the_address_comes_from_the_firmest_source_at_hand(
    fixture_module: container.Module, wide: tuple[bytes, LaunchProfile]
) -> None:
    name = "_Z5saxpyifPKfPf"
    symbol = fixture_module.functions[name][1]
    bare = a_report([{"reference": 7, "binary": fixture_module.binary}], [(name, 7)])
    told = a_report(
        [{"reference": 7, "binary": fixture_module.binary, "loaded": [(name, 0x5000, symbol)]}], [(name, 7)]
    )
    for data, bases, pcs, address, problem in (
        (told, [], [], 0x5000, None),
        (told, [0x5000], [], 0x5000, None),
        (told, [0x9000], [], 0x9000, "differs from where its module was loaded"),
        (told, [0x8000, 0x9000], [], 0x5000, "none of the launch's function addresses"),
        (bare, [0x9000], [0x9010], 0x9000, None),
        (bare, [], [0x9020, 0x9010], 0x9010, "the lowest PC that was seen"),
        (bare, [], [], None, "not recorded"),
    ):
        code = code_of(data, a_launch(wide[1], name, 0, bases, pcs))
        assert code.functions[name].address == address
        assert [problem in p for p in code.problems] == ([] if problem is None else [True])


def test_kernels_of_one_name_in_two_modules_are_told_apart_by_their_address(
    fixture_module: container.Module, wide: tuple[bytes, LaunchProfile]
) -> None:
    name = "_Z5saxpyifPKfPf"
    symbol = fixture_module.functions[name][1]
    other = bytearray(fixture_module.binary)
    other[9] ^= 1  # padding of the ELF mark: another image with the same code
    data = a_report(
        [{"reference": 1, "binary": fixture_module.binary, "loaded": [(name, 0x1000, symbol)]},
         {"reference": 2, "binary": bytes(other), "loaded": [(name, 0x8000, symbol)]}],
        [(name, 1), (name, 2), ("gone", 3)],
    )  # fmt: skip
    launches = [a_launch(wide[1], name, 0, [0x8000]), a_launch(wide[1], name, 1, [0x1000]), a_launch(wide[1], name, 5)]
    codes = load_code(data, launches)
    assert [codes[i].functions[name].address for i in (0, 1, 5)] == [0x8000, 0x1000, 0x1000]
    assert codes[0].digest != codes[1].digest
    assert codes[1] is not codes[5]
    gone = code_of(data, a_launch(wide[1], "gone", 2))
    assert (gone.functions, gone.problems) == ({}, ("no cubin of the report holds gone",))


def test_an_image_that_the_driver_relocated_reads_like_the_original(
    fixture_module: container.Module, wide: tuple[bytes, LaunchProfile]
) -> None:
    image = elf.parse(fixture_module.binary)
    loaded = bytearray(image.data)
    for n, section in enumerate(image.code_sections):
        for symbol in image.symbols:
            if symbol.section == section.index:
                struct.pack_into("<Q", loaded, image.symbols_offset + symbol.index * 24 + 8, 0x7F0000000000 + (n << 16))
    # Tables that hold addresses are relocated as well.
    for table in (s for s in image.sections if not s.is_code):
        for position, number in image.relocations_of(table):
            owner = [s.index for s in image.code_sections].index(image.symbols[number].section)
            at = table.offset + position
            value = struct.unpack_from("<Q", loaded, at)[0] + 0x7F0000000000 + (owner << 16)
            struct.pack_into("<Q", loaded, at, value)
    back = elf.parse(bytes(loaded))
    assert back.base(back.code_sections[1]) == 0x7F0000010000
    assert back.unrelocated().data == image.data
    name = image.code_sections[1].name.removeprefix(".text.")
    data = a_report([{"reference": 1, "binary": bytes(loaded)}], [(name, 1)])
    code = code_of(data, a_launch(wide[1], name))
    assert (code.functions[name].address, code.problems) == (0x7F0000010000, ())


def test_other_peoples_functions_in_sections_of_their_own_come_after_the_kernel(
    corpus_files: Sequence[Path], load_once: Callable[[Path], Report]
) -> None:
    path = next((p for p in corpus_files if "victor-lvsy" in p.name), None)
    if path is None:
        pytest.skip("the corpus does not hold the report with separately compiled min and max")
    launch = load_once(path).launches[1]
    code = code_of(path, launch)
    assert list(code.functions) == [launch.mangled, "min", "max"]
    ran = {found[0].name for pc in executed(launch) if (found := code.find(pc)) is not None}
    assert ran == set(code.functions)


# --- damage


def test_a_report_without_code_or_not_a_report_is_refused_in_one_line(wide: tuple[bytes, LaunchProfile]) -> None:
    for data, says in (
        (a_report([], [("k", 1)]), "holds no machine code"),
        (a_report([{"reference": 1}], [("k", 1)]), "holds no machine code"),
        (b"NVR\0", "holds no machine code"),
        (b"", "not an Nsight Compute report"),
        (container.ZSTD_MAGIC + b"rest", "zstd -d"),
    ):
        with pytest.raises(ReportError) as caught:
            code_of(data, wide[1])
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ReportError, match=r"no-such\.ncu-rep: cannot be read"):
        code_of("no-such.ncu-rep", wide[1])


def test_a_container_that_cannot_be_walked_still_gives_the_cubin_in_it(wide: tuple[bytes, LaunchProfile]) -> None:
    data, launch = wide
    (module,) = read_modules(data).modules
    broken = data[:8] + b"\xff\xff\xff\xff" + data[12:]
    assert read_modules(broken).modules == ()
    assert list(elf.carve(broken)) == [module.binary]
    code = code_of(broken, launch)
    assert check_problem(code, "truncated or damaged")
    assert by_opcode(launch, code) == by_opcode(launch, code_of(data, launch))


def check_problem(code: Code, says: str) -> bool:
    return any(says in problem and "\n" not in problem for problem in code.problems)


@pytest.mark.parametrize("kept", [0, 3, 4, 20, 63, 64, 1000, 8000, 23000])
def test_a_cubin_that_is_cut_off_is_a_problem_in_one_line(
    kept: int, fixture_module: container.Module, wide: tuple[bytes, LaunchProfile]
) -> None:
    image = fixture_module.binary[:kept]
    with pytest.raises(ReportError) as caught:
        elf.parse(image)
    assert "\n" not in str(caught.value)
    name = "_Z5saxpyifPKfPf"
    if kept:
        code = code_of(a_report([{"reference": 1, "binary": image}], [(name, 1)]), a_launch(wide[1], name))
        assert not code.functions
        assert code.problems == (str(caught.value),)
        assert code.sm == 90


def test_bytes_turned_over_at_random_raise_nothing_but_report_errors(
    fixture_module: container.Module, wide: tuple[bytes, LaunchProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvdisasm, "disassemble", lambda *a, **k: nvdisasm.Listing("", "not asked"))
    dice = random.Random(1)
    tables = len(fixture_module.binary) - 2648  # the section table; half of the blows go there and to the header
    parsed = 0
    for _ in range(400):
        image = bytearray(fixture_module.binary)
        for _ in range(dice.randint(1, 6)):
            where = dice.choice((dice.randrange(64), dice.randrange(tables, len(image)), dice.randrange(len(image))))
            image[where] = dice.choice((0, 255, dice.randrange(256)))
        name = dice.choice(("_Z5saxpyifPKfPf", "_Z6widthsPKhPh"))
        list(elf.carve(bytes(image)))
        outcome = attempt(lambda image=bytes(image): line_tables(elf.parse(image).unrelocated()))
        parsed += isinstance(outcome, dict)
        code = code_of(a_report([{"reference": 1, "binary": bytes(image)}], [(name, 1)]), a_launch(wide[1], name))
        assert code.problems
    assert 50 < parsed < 390


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or the one line of the ReportError that it raises; anything else is raised."""
    try:
        return call()
    except ReportError as error:
        return str(error) if "\n" not in str(error) else error


def test_a_report_cut_off_anywhere_gives_code_or_a_report_error(
    wide: tuple[bytes, LaunchProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, launch = wide
    monkeypatch.setattr(nvdisasm, "disassemble", lambda *a, **k: nvdisasm.Listing("", "not asked"))
    for share in range(0, 100, 3):
        kept = data[: len(data) * share // 100]
        outcome = attempt(lambda kept=kept: code_of(kept, launch))
        if isinstance(outcome, Code):
            assert not outcome.functions
            assert outcome.problems
        else:
            assert isinstance(outcome, str)


def test_code_before_volta_is_not_decoded(fixture_module: container.Module, wide: tuple[bytes, LaunchProfile]) -> None:
    old = bytearray(fixture_module.binary)
    old[49] = 61
    code = code_of(
        a_report([{"reference": 1, "binary": bytes(old)}], [("_Z5saxpyifPKfPf", 1)]),
        a_launch(wide[1], "_Z5saxpyifPKfPf"),
    )
    assert (code.sm, code.functions) == (61, {})
    assert check_problem(code, "sm_61 code is not decoded: its instructions are not 128 bits wide")


def test_find_knows_every_byte_of_every_function_and_nothing_else(wide: tuple[bytes, LaunchProfile]) -> None:
    code = code_of(*wide)
    (kernel,) = code.functions.values()
    assert kernel.address is not None
    for pc in (kernel.address, kernel.address + 7, kernel.address + kernel.size - 1):
        found = code.find(pc)
        assert found is not None
        assert found[1].offset == (pc - kernel.address) // 16 * 16
    assert code.find(kernel.address - 1) is None
    assert code.find(kernel.address + kernel.size) is None
    assert cubin.FIRST_SM == 70
