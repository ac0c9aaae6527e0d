"""The code of every launch is the code that ran: PCs, opcode counts, lines; and what happens when it cannot be had."""

from __future__ import annotations

import gzip
import os
import random
import stat
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler import container, cubin, elf, nvdisasm, sass
from profiler.code import INSTRUCTION_BYTES, Code
from profiler.container import read_modules
from profiler.cubin import code_of, load_code
from profiler.errors import MissingToolError, ReportError
from profiler.lines import line_tables, plain_name
from profiler.model import Instances, LaunchProfile, Metric, Report

EXECUTED, FUNCTION_PCS = "inst_executed", "launch__function_pcs"
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


def test_every_launch_of_our_own_reports_is_made_of_the_opcodes_that_it_executed(
    demo_paths: Sequence[Path], capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    compared = 0
    for path in [*demo_paths, *sorted(capture("kinds").parent.glob("*.ncu-rep"))]:
        launches = load_once(path).launches
        for index, code in load_code(path, launches).items():
            launch = launches[index]
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
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda path: load_code(path, load_once(path).launches), readable))
    outcomes: Counter[str] = Counter()
    for path, of_launch in zip(readable, codes, strict=True):
        for launch in load_once(path).launches:
            code = of_launch[launch.index]
            if any(REFUSED in problem for problem in code.problems):
                assert code.sm < 75, path.name
                outcomes[f"sm_{code.sm} is refused by nvdisasm"] += 1
                continue
            assert code.sm >= 75, path.name
            outcomes[check_launch(launch, code)] += 1
    print(f"{len(readable)} reports: {dict(outcomes)}")
    assert outcomes["equal"] >= 0.2 * outcomes.total()


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


def test_captures_of_one_program_have_one_digest(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    names = ("kinds", "basic", "cache_none", "application_replay", "duration_only")
    found = {code_of(p, load_once(p).launches[0]).digest for p in map(capture, names)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("stage", "stage"), ("_Z7stage_av", "stage_a"), ("_ZN3cub4warp4scanIiEEvT_", "cub::warp::scan"),
        ("_ZNK2at6native3fooIfLi4ELb1ENS_4EnumES1_EclERKT2_i", "at::native::foo"),
        ("_ZN34_INTERNAL_2e2c1564_6_q6k_cu_mmq_q6k12__half2floatE6__half", "__half2float"),
        ("_ZN12_GLOBAL__N_13barEv", "(anonymous)::bar"), ("_ZN1aI1bIcLi12EES2_T0_E4nameEv", "a::name"),
        ("_ZL5localv", "local"), ("_Z", "_Z"), ("_ZN", "_ZN"), ("_Z99short", "short"), ("_ZN3St1E", "_ZN3St1E"),
    ],
)  # fmt: skip
def test_mangled_names_are_read_as_far_as_they_are_understood(mangled: str, plain: str) -> None:
    assert plain_name(mangled) == plain or plain_name(mangled) == mangled


# --- made-up reports: modules, references, addresses


def a_report(modules: Sequence[dict[str, Any]], kernels: Sequence[tuple[str, int]]) -> bytes:
    """A container with one block: SourceData of these modules, KernelResults (name, reference)."""
    classes = container._message_classes()
    entries = []
    for module in modules:
        entry = classes["SourceData"](reference=module["reference"], sm_version=9 << 16)
        if "binary" in module:
            entry.binary = module["binary"]
        for name, address, symbol in module.get("loaded", ()):
            entry.relocation.functions.add(symbol=name.encode(), address=address, symbol_index=symbol)
        entries.append(entry)
    for name, reference in kernels:
        result = classes["KernelResult"](mangled=name.encode())
        result.source.reference = reference
        entries.append(result)
    payload = b"".join(struct.pack("<I", len(raw)) + raw for raw in (e.SerializeToString() for e in entries))
    header = classes["Block"](sources=len(modules), results=len(kernels), size=len(payload)).SerializeToString()
    return container.MAGIC + struct.pack("<I", 0) + struct.pack("<I", len(header)) + header + payload


def a_launch(
    like: LaunchProfile, mangled: str, index: int = 0, bases: Sequence[int] = (), pcs: Sequence[int] = ()
) -> LaunchProfile:
    metrics = {}
    if bases:
        metrics[FUNCTION_PCS] = Metric(FUNCTION_PCS, "", None, Instances(tuple(bases), tuple(range(len(bases)))))
    if pcs:
        metrics[EXECUTED] = Metric(EXECUTED, "inst", None, Instances((1,) * len(pcs), tuple(pcs)))
    return replace(like, index=index, mangled=mangled, metrics=metrics)


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


@pytest.mark.parametrize("kept", [0, 3, 4, 20, 63, 64, 1000, 8000, 23799])
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
        try:
            line_tables(elf.parse(bytes(image)).unrelocated())
            parsed += 1
        except ReportError as error:
            assert "\n" not in str(error)
        code = code_of(a_report([{"reference": 1, "binary": bytes(image)}], [(name, 1)]), a_launch(wide[1], name))
        assert code.problems
    assert 50 < parsed < 390


def test_a_report_cut_off_anywhere_gives_code_or_a_report_error(
    wide: tuple[bytes, LaunchProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, launch = wide
    monkeypatch.setattr(nvdisasm, "disassemble", lambda *a, **k: nvdisasm.Listing("", "not asked"))
    for share in range(0, 100, 3):
        try:
            code = code_of(data[: len(data) * share // 100], launch)
        except ReportError as error:
            assert "\n" not in str(error)
        else:
            assert not code.functions
            assert code.problems


# --- nvdisasm and its cache


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


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "alien", "flipped"])
def test_a_damaged_cache_entry_is_ignored_and_rewritten(
    damage: str, starts: list[Sequence[str]], wide: tuple[bytes, LaunchProfile], tmp_path: Path
) -> None:
    code = code_of(*wide)
    (entry,) = (tmp_path / "kept").rglob("*.gz")
    whole = entry.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    entry.write_bytes(
        {
            "cut": whole[: len(whole) // 2], "empty": b"", "text": b"no gzip", "alien": gzip.compress(b"nothing"),
            "flipped": bytes(flipped),
        }[damage]
    )  # fmt: skip
    assert code_of(*wide) == code
    assert len(starts) == 2
    assert gzip.decompress(entry.read_bytes()) == gzip.decompress(whole)
    assert code_of(*wide) == code
    assert len(starts) == 2


def test_a_cache_that_cannot_be_written_is_no_error(
    starts: list[Sequence[str]], wide: tuple[bytes, LaunchProfile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "file"))
    assert code_of(*wide).functions
    assert len(starts) == 1


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CYINST_CACHE", str(tmp_path / "own"))
    assert nvdisasm.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("CYINST_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert nvdisasm.cache_folder() == tmp_path / "xdg" / "cyinst"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert nvdisasm.cache_folder() == tmp_path / ".cache" / "cyinst"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert nvdisasm.cache_folder() == tmp_path / "local" / "cyinst"


def test_the_oldest_listings_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvdisasm, "KEPT", 10)
    for n in range(11):
        nvdisasm._keep(tmp_path / f"{n}.gz", ".section")
        os.utime(tmp_path / f"{n}.gz", (n, n))
    nvdisasm._keep(tmp_path / "new.gz", ".section")
    assert {p.name for p in tmp_path.iterdir()} == {"new.gz", *(f"{n}.gz" for n in range(3, 11))} - {"2.gz"}


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
