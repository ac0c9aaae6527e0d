"""Opcode classes, access widths and MAC counts, against kernels whose counts are known by construction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler import opcodes
from profiler.accounting import account
from profiler.books import Account
from profiler.model import Report
from profiler.opcodes import OpcodeClass, classify, memory_access, tensor_macs
from profiler.vocabulary import OPCODES

PRODUCTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "tensor_opcodes.json").read_text())


def test_no_opcode_name_is_in_two_classes() -> None:
    names = Counter(name for table in opcodes._BY_NAME.values() for name in table.split())
    assert [name for name, count in names.items() if count > 1] == []


def test_no_name_of_a_table_also_matches_the_pattern_of_the_tensor_instructions() -> None:
    names = [name for table in opcodes._BY_NAME.values() for name in table.split()]
    assert [name for name in names if opcodes._TENSOR.match(name)] == []
    assert all(classify(name) is cls for cls, table in opcodes._BY_NAME.items() for name in table.split())


def test_every_opcode_of_every_report_has_a_class(report: Report) -> None:
    unknown = set()
    for launch in report.launches:
        found = launch.instances(OPCODES)
        for opcode in found.ids or () if found is not None else ():
            assert isinstance(opcode, str)
            if classify(opcode) is OpcodeClass.OTHER:
                unknown.add(opcode)
    assert not unknown


def test_the_classes_partition_the_executed_instructions(report: Report) -> None:
    for launch in report.launches:
        a = account(launch)
        assert sum(a.opcode_classes.values()) == sum(a.opcodes.values())


@pytest.mark.parametrize(
    ("opcode", "cls"),
    [
        ("LDG.E.128.CONSTANT", OpcodeClass.GLOBAL_LOAD),
        ("STG.E.U8", OpcodeClass.GLOBAL_STORE),
        ("LDS.128", OpcodeClass.SHARED_LOAD),
        ("LDSM.16.M88.4", OpcodeClass.SHARED_LOAD),
        ("LDL", OpcodeClass.LOCAL),
        ("LDGSTS.E.BYPASS.128", OpcodeClass.ASYNC_COPY),
        ("UBLKCP.S.G", OpcodeClass.ASYNC_COPY),
        ("UTMALDG.2D", OpcodeClass.ASYNC_COPY),
        ("ULDC.64", OpcodeClass.CONSTANT_LOAD),
        ("IMMA.16832.S8.S8", OpcodeClass.TENSOR),
        ("HGMMA.64x128x16.F32.BF16", OpcodeClass.TENSOR),
        ("UTCHMMA", OpcodeClass.TENSOR),
        ("BMMA.168256.XOR.POPC", OpcodeClass.TENSOR),
        ("IMAD.WIDE.U32", OpcodeClass.INTEGER),
        ("IMAD.MOV.U32", OpcodeClass.MOVE),
        ("UIADD3.X", OpcodeClass.UNIFORM),
        ("HFMA2.MMA", OpcodeClass.FP16),
        ("BAR.SYNC.DEFER_BLOCKING", OpcodeClass.SYNC),
        ("NOT_AN_OPCODE", OpcodeClass.OTHER),
    ],
)
def test_the_class_of_an_opcode_follows_its_base_name(opcode: str, cls: OpcodeClass) -> None:
    assert classify(opcode) is cls


# ---- tensor cores --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", PRODUCTS["products"], ids=lambda p: p["dtype"])
def test_executed_instructions_times_macs_is_the_size_of_the_matrix_product(product: dict[str, Any]) -> None:
    macs = tensor_macs(product["opcode"])
    assert macs is not None
    assert product["executed"] * macs == PRODUCTS["macs"] == 2048**3


@pytest.mark.parametrize(
    ("opcode", "macs"),
    [
        ("HMMA.16816.F32", 16 * 8 * 16),
        ("HMMA.1688.F32.TF32", 16 * 8 * 8),
        ("IMMA.8816.S8.S8.SAT", 8 * 8 * 16),
        ("IMMA.16832.S8.S8", 16 * 8 * 32),
        ("DMMA.884", 8 * 8 * 4),
        ("DMMA.8x8x4", 8 * 8 * 4),
        ("BMMA.88128.XOR.POPC", 8 * 8 * 128),
        ("BMMA.168256.XOR.POPC", 16 * 8 * 256),
        # A quarter for each of the four warps.
        ("HGMMA.64x256x16.F32", 64 * 256 * 16 // 4),
        # Not told by the name: a Volta step, a shape in a descriptor, no shape, no tensor instruction.
        ("HMMA.884.F32.F32.STEP0", None),
        ("UTCHMMA.2CTA", None),
        ("HMMA", None),
        ("FFMA", None),
        ("IMAD.WIDE.U32", None),
    ],
)
def test_macs_come_from_the_shape_in_the_name_or_are_unknown(opcode: str, macs: int | None) -> None:
    assert tensor_macs(opcode) == macs


@pytest.fixture(scope="module")
def kinds(capture: Callable[[str], Path], load_once: Callable[[Path], Report]) -> dict[str, Account]:
    """The accounts of tests/captures/kinds by kernel; of the two saxpy launches the last."""
    return {x.kernel: account(x) for x in load_once(capture("kinds")).launches}


def test_mma_mix_executed_exactly_its_loops_of_each_of_the_five_shapes(kinds: dict[str, Account]) -> None:
    blocks, warps, loops = 528, 4, 64
    each = blocks * warps * loops
    shapes = {
        "IMMA.16816.S8.S8": 16 * 8 * 16,
        "IMMA.16832.S8.S8": 16 * 8 * 32,
        "HMMA.16816.F32": 16 * 8 * 16,
        "HMMA.1688.F32.TF32": 16 * 8 * 8,
        "DMMA.8x8x4": 8 * 8 * 4,
    }
    a = kinds["mma_mix"]
    used = {o: n for o, n in a.opcodes.items() if classify(o) is OpcodeClass.TENSOR}
    assert used == dict.fromkeys(shapes, each)
    assert a.tensor is not None
    assert a.tensor.instructions == 5 * each
    assert a.tensor.macs == each * sum(shapes.values())
    assert a.tensor.unknown == ()


def test_kernels_without_tensor_instructions_are_counted_as_none_and_reports_without_opcodes_as_unknown(
    kinds: dict[str, Account], capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    for name in ("saxpy", "widths", "local_array", "bulk_copy"):
        tensor = kinds[name].tensor
        assert tensor is not None
        assert (tensor.instructions, tensor.macs) == (0, 0)
    (launch,) = load_once(capture("states_only")).launches
    assert account(launch).tensor is None


# ---- widths --------------------------------------------------------------------------------------------------------


def test_widths_executed_one_load_and_store_of_each_width_per_warp_and_one_asynchronous_copy(
    kinds: dict[str, Account],
) -> None:
    warps = 2048 * 8
    rows = {(m.access.space, m.access.kind, m.access.bits): m.instructions for m in kinds["widths"].memory}
    in_global = {key: n for key, n in rows.items() if key[0].startswith("global")}
    assert in_global == {
        **{("global", kind, bits): warps for kind in ("load", "store") for bits in (8, 16, 32, 64, 128)},
        ("global to shared", "copy", 128): warps,
    }
    assert kinds["widths"].opcode_classes[OpcodeClass.GLOBAL_LOAD] == 5 * warps
    assert kinds["widths"].opcode_classes[OpcodeClass.ASYNC_COPY] == warps
    assert rows["shared", "store", 128] == warps


def test_saxpy_executed_two_loads_and_one_store_of_32_bits_per_warp(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    large, *_, small = load_once(capture("kinds")).launches
    for launch, warps in ((large, 16384 * 8), (small, 1)):
        rows = {(m.access.space, m.access.kind, m.access.bits): m.instructions for m in account(launch).memory}
        assert rows == {("global", "load", 32): 2 * warps, ("global", "store", 32): warps}


def test_bulk_copy_executed_one_bulk_copy_per_block_whose_size_is_unknown(kinds: dict[str, Account]) -> None:
    a = kinds["bulk_copy"]
    assert sum(n for o, n in a.opcodes.items() if o.split(".")[0] == "UBLKCP") == 2048
    assert [(m.access.bits, m.instructions) for m in a.memory if m.access.space == "bulk"] == [(None, 2048)]


def test_local_array_stores_64_words_and_loads_one_per_warp_in_local_memory(kinds: dict[str, Account]) -> None:
    warps = 1056 * 4
    rows = {(m.access.space, m.access.kind): m.instructions for m in kinds["local_array"].memory}
    assert rows["local", "store"] == 64 * warps
    assert rows["local", "load"] == warps


@pytest.mark.parametrize(
    ("opcode", "access"),
    [
        ("LDG.E", ("global", "load", 32)),
        ("LDG.E.U8.CONSTANT", ("global", "load", 8)),
        ("LDG.E.S16", ("global", "load", 16)),
        ("LDG.E.64.STRONG.SYS", ("global", "load", 64)),
        ("LDG.E.128.CONSTANT", ("global", "load", 128)),
        ("LDG.E.ENL2.256", ("global", "load", 256)),
        ("LD.E.U8", ("generic", "load", 8)),
        ("STS.64", ("shared", "store", 64)),
        ("LDSM.16.M88", ("shared", "load", 32)),
        ("LDSM.16.M88.2", ("shared", "load", 64)),
        ("LDSM.16.MT88.4", ("shared", "load", 128)),
        ("STL.128", ("local", "store", 128)),
        ("LDGSTS.E.BYPASS.128", ("global to shared", "copy", 128)),
        ("UBLKCP.S.G", ("bulk", "copy", None)),
        ("FFMA", None),
        ("LDC.64", None),
    ],
)
def test_the_width_of_an_access_is_in_its_modifiers(opcode: str, access: tuple[str, str, int | None] | None) -> None:
    found = memory_access(opcode)
    assert (None if found is None else (found.space, found.kind, found.bits)) == access
