"""nvdisasm's text and raw instruction words -> instructions, on texts small enough to see the answer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from profiler.code import Control, Frame
from profiler.sass import Listing, controls, decode_control, parse

HEAD = """\t.target\tsm_90

\t.elftype\t@"ET_EXEC"


//--------------------- .text.kernel             --------------------------
\t.section\t.text.kernel,"ax",@progbits
\t.align\t128
        .global         kernel
        .type           kernel,@function
        .size           kernel,(.L_x_9 - kernel)
kernel:
.text.kernel:
"""
TAIL = """.L_x_9:


//--------------------- SYMBOLS --------------------------

\t.type\t\t.nv.reservedSmem.offset0,@object
"""


def listing(*lines: str) -> Listing:
    """The parsed section of a kernel whose lines are given; instructions get their offsets here."""
    body, offset = [], 0
    for line in lines:
        if line.startswith((".", "$", "\t", "_")):
            body.append(line)
        else:
            body.append(f"        /*{offset:04x}*/                   {line}")
            offset += 16
    (found,) = parse(HEAD + "\n".join(body) + "\n" + TAIL)
    return found


def word(stall: int = 0, bit45: int = 0, write: int = 7, read: int = 7, wait: int = 0, reuse: int = 0) -> int:
    return stall << 41 | bit45 << 45 | write << 46 | read << 49 | wait << 52 | reuse << 58


def code(words: Sequence[int], noise: int = 0) -> bytes:
    """Instructions with these control fields, and ones in all bits that are not control."""
    other = ((1 << 64) - 1) & ~(((1 << 21) - 1) << 41) if noise else 0
    return b"".join(struct.pack("<QQ", (1 << 64) - 1 if noise else 0, w | other) for w in words)


def test_a_section_has_its_name_its_instructions_and_nothing_of_what_stands_around_it() -> None:
    found = listing("MOV R1, R2 ;", "EXIT ;", ".L_x_0:", "BRA `(.L_x_0);", "NOP;")
    assert found.section == ".text.kernel"
    assert found.functions == ((0, "kernel"),)
    assert [(i.index, i.offset, i.opcode) for i in found.instructions] == [
        (0, 0, "MOV"), (1, 16, "EXIT"), (2, 32, "BRA"), (3, 48, "NOP"),
    ]  # fmt: skip
    assert found.instructions[2].target == 32
    assert found.instructions[3].operands == ()


@pytest.mark.parametrize(
    ("text", "predicate", "opcode", "operands"),
    [
        ("MOV R1, R2 ;", None, "MOV", ("R1", "R2")),
        ("EXIT ;", None, "EXIT", ()),
        ("@P0 EXIT ;", "P0", "EXIT", ()),
        ("@!P0 STG.E desc[UR14][R8.64+0x20], R4 ;", "!P0", "STG.E", ("desc[UR14][R8.64+0x20]", "R4")),
        ("@UP1 UMOV UR4, 0x400 ;", "UP1", "UMOV", ("UR4", "0x400")),
        ("@!UPT UIADD3 URZ, URZ, URZ, URZ ;", "!UPT", "UIADD3", ("URZ", "URZ", "URZ", "URZ")),
        ("FMUL R7, R9.reuse, 0.63661974668502807617 ;", None, "FMUL", ("R7", "R9", "0.63661974668502807617")),
        ("IMAD R3, R4.reuse, R5.reuse, -R6 ;", None, "IMAD", ("R3", "R4", "R5", "-R6")),
        ("FSETP.GE.AND P0, PT, |R0|, +INF , PT ;", None, "FSETP.GE.AND", ("P0", "PT", "|R0|", "+INF", "PT")),
        ("FADD R1, -|R3|, c[0x0][R3] ;", None, "FADD", ("R1", "-|R3|", "c[0x0][R3]")),
        ("LDS.128 R4, [R2+UR4+0x10] ;", None, "LDS.128", ("R4", "[R2+UR4+0x10]")),
        ("DEPBAR.LE SB0, 0x0, {1,2} ;", None, "DEPBAR.LE", ("SB0", "0x0", "{1,2}")),
        ("X R1, [R2, UR3], (a, b), R4 ;", None, "X", ("R1", "[R2, UR3]", "(a, b)", "R4")),
        ("MOV R2, 32@lo((k4 + .L_x_3@srel)) ;", None, "MOV", ("R2", "32@lo((k4 + .L_x_3@srel))")),
        ("IMMA.16816.S8.S8 R4, R2.ROW, R3.COL, R4 ;", None, "IMMA.16816.S8.S8", ("R4", "R2.ROW", "R3.COL", "R4")),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0 ;", None, "HGMMA.64x64x16.F32",
         ("R24", "gdesc[UR4]", "R24", "gsb0")),
    ],
)  # fmt: skip
def test_an_instruction_falls_into_predicate_opcode_and_operands(
    text: str, predicate: str | None, opcode: str, operands: tuple[str, ...]
) -> None:
    (found,) = listing(text).instructions
    assert (found.predicate, found.opcode, found.operands) == (predicate, opcode, operands)


def test_direct_branches_go_to_the_offset_of_their_label() -> None:
    found = listing(
        "BSSY B0, `(.L_x_2) ;", "@P0 BRA `(.L_x_1) ;", "BRA.DIV UR4, `(.L_x_2) ;", ".L_x_1:", "NOP ;", ".L_x_2:",
        "CALL.REL.NOINC `($kernel$f) ;", "BRA `(.L_x_missing) ;", "$kernel$f:", "RET.REL.NODEC R20 `(kernel) ;",
    )  # fmt: skip
    assert [i.target for i in found.instructions] == [64, 48, 64, None, 96, None, None]
    assert found.functions == ((0, "kernel"), (96, "$kernel$f"))


def test_a_label_that_a_register_is_relative_to_is_no_target() -> None:
    found = listing("CALL.REL.NOINC R6 `(kernel) ;", "CALL.ABS.NOINC R6 ;", "RET.ABS.NODEC R20 0x0 ;")
    assert [i.target for i in found.instructions] == [None, None, None]


def test_an_indirect_branch_has_the_targets_of_its_table() -> None:
    table = '(*"BRANCH_TARGETS .L_x_1,.L_x_2,.L_x_1,.L_x_gone"*)'
    found = listing(f"BRX R4 -0x100      {table};", ".L_x_1:", "NOP ;", ".L_x_2:", f"BRX R4 -0x110 {table} ;", "EXIT ;")
    first = found.instructions[0]
    assert (first.opcode, first.operands, first.target) == ("BRX", ("R4 -0x100",), None)
    assert first.targets == (16, 32, 16)
    assert found.instructions[1].targets == ()
    assert found.branch_targets == (16, 32)


def test_comments_in_a_row_are_one_inline_stack_and_hold_until_the_next() -> None:
    found = listing(
        "S2R R0, SR_TID.X ;",
        '\t//## File "a b/x.cu", line 2 inlined at "a b/x.cu", line 5',
        '\t//## File "a b/x.cu", line 5 inlined at "y.cuh", line 9',
        '\t//## File "y.cuh", line 9',
        "NOP ;",
        ".L_x_1:",
        "NOP ;",
        '\t//## File "y.cuh", line 12',
        "EXIT ;",
    )
    stack = (Frame("a b/x.cu", 2), Frame("a b/x.cu", 5), Frame("y.cuh", 9))
    assert [i.frames for i in found.instructions] == [(), stack, stack, (Frame("y.cuh", 12),)]
    assert found.instructions[1].frames is found.instructions[2].frames


def test_comments_that_do_not_continue_a_stack_begin_a_new_one() -> None:
    found = listing(
        '\t//## File "x.cu", line 1',
        '\t//## File "x.cu", line 2 inlined at "x.cu", line 7',
        "NOP ;",
        '\t//## File "x.cu", line 3 inlined at "x.cu", line 7',
        '\t//## File "x.cu", line 8',
        "NOP ;",
    )
    # The caller's own line is missing from the first: it is still where the code was inlined.
    assert found.instructions[0].frames == (Frame("x.cu", 2), Frame("x.cu", 7))
    assert found.instructions[1].frames == (Frame("x.cu", 8),)


def test_known_stacks_replace_printed_ones_where_both_agree_on_the_innermost_line() -> None:
    lines = [
        '\t//## File "x.cu", line 2 inlined at "x.cu", line 7',
        "        /*0000*/ NOP ;",
        "        /*0010*/ EXIT ;",
    ]
    text = HEAD + "\n".join(lines) + "\n"
    known = {0: (Frame("x.cu", 2, "f"), Frame("x.cu", 9)), 16: (Frame("x.cu", 3, "f"), Frame("x.cu", 9))}
    (found,) = parse(text, [], [known.__getitem__])
    assert [i.frames for i in found.instructions] == [known[0], (Frame("x.cu", 2), Frame("x.cu", 7))]


def test_sections_come_in_the_order_of_the_text_each_with_its_own_labels_and_code() -> None:
    second = HEAD.replace(".text.kernel", ".text.other__1").replace("kernel", "other__0")
    text = f"{HEAD}        /*0000*/ BRA `(.L_x_9);\n{TAIL}{second}        /*0000*/ BRA `(.L_x_9);\n"
    one, two = parse(text, [code([word(stall=3)]), code([word(stall=5)])])
    assert (one.section, two.section) == (".text.kernel", ".text.other__1")
    assert one.instructions[0].target == 16
    assert two.instructions[0].target is None
    controls_of = [i.control for i in (*one.instructions, *two.instructions)]
    assert [c.stall for c in controls_of if c is not None] == [3, 5]


def test_code_of_another_length_gives_no_controls() -> None:
    text = HEAD + "        /*0000*/ NOP ;\n        /*0010*/ EXIT ;\n"
    for raw in (b"", code([word(stall=1)]), code([word(stall=1)] * 3), code([word(stall=1)] * 2)[:-1]):
        (found,) = parse(text, [raw])
        assert [i.control for i in found.instructions] == [None, None]


@pytest.mark.parametrize(
    "text", ["", "\n", "nonsense", "/*0000*/ NOP ;", '\t.section\t.debug_line,"",@progbits\n  1:\n']
)
def test_text_without_code_sections_has_no_listing(text: str) -> None:
    assert parse(text) == ()


@pytest.mark.parametrize("noise", [0, 1])
def test_every_field_of_the_control_word_is_where_it_should_be(noise: int) -> None:
    for field, values in (("stall", range(16)), ("write", range(8)), ("read", range(8)), ("wait", range(64))):
        for value in values:
            raw = code([word(**{field: value})], noise)
            found = decode_control(struct.unpack("<QQ", raw)[1])
            expected = {"stall": 0, "write": None, "read": None, "wait": 0} | {field: value}
            if field in ("write", "read") and value == 7:
                expected[field] = None
            assert (found.stall, found.write_barrier, found.read_barrier, found.wait_mask) == (
                expected["stall"], expected["write"], expected["read"], expected["wait"],
            )  # fmt: skip
    assert decode_control(word(reuse=9)).reuse == 9
    # The bit is 0 where the scheduler is asked to switch.
    assert decode_control(word(bit45=0)).yield_hint
    assert not decode_control(word(bit45=1)).yield_hint


def test_waits_and_sets_name_scoreboards() -> None:
    found = decode_control(word(write=3, read=0, wait=0b100101))
    assert (found.waits, found.sets) == ((0, 2, 5), (3, 0))
    assert decode_control(word(write=2, read=2)).sets == (2,)


def test_words_of_real_instructions() -> None:
    # sm_90: LDG.E.128 R8, desc[UR14][R4.64] sets SB5 and, on read, SB0; STS.128 [R12], R8 waits for SB5.
    assert decode_control(0x000168000C1E1D00) == Control(4, False, 5, 0, 0, 0)
    assert decode_control(0x0205E20000000C00) == Control(1, False, None, 2, 0b100000, 0)


def test_a_debug_build_has_no_controls_a_short_kernel_without_scoreboards_has() -> None:
    assert controls(code([word()] * 4)) == (None,) * 4
    short = controls(code([word(stall=5), word()]))
    assert [c is not None for c in short] == [True, True]
    assert controls(b"") == ()
