import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sass_builder import function, shuffled_blocks

from profiler.blame import Method
from profiler.cfg import FlowGraph
from profiler.defuse import DefUse, access_of
from profiler.producers import ProducerFinder
from profiler.vocabulary import WarpState

LONG, SHORT = WarpState.LONG_SCOREBOARD, WarpState.SHORT_SCOREBOARD


def found(text: str, position: int, state: WarpState = LONG) -> list[tuple[int, Method, int]]:
    blamed = ProducerFinder(function(text)).find(position, state)
    return [(b.position, b.method, b.loop_carried) for b in blamed]


def test_the_producer_is_the_instruction_that_sets_the_scoreboard() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    IADD3 R9, R9, 0x1, RZ
    FADD R5, R4, R6              | ?0
    EXIT
    """
    assert found(text, 2) == [(0, Method.SCOREBOARD_REGISTER, 0)]


def test_of_two_loads_on_one_scoreboard_the_consumed_one_is_blamed() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    LDG.E R8, desc[UR4][R6.64]   | w0
    FADD R5, R4, R9              | ?0
    EXIT
    """
    assert found(text, 2) == [(0, Method.SCOREBOARD_REGISTER, 0)]


def test_two_consumed_loads_are_a_set() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    LDG.E R8, desc[UR4][R6.64]   | w0
    FADD R5, R4, R8              | ?0
    EXIT
    """
    assert [p for p, _, _ in found(text, 2)] == [0, 1]


def test_what_cannot_be_decided_by_registers_stays_a_labelled_set() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    LDG.E R8, desc[UR4][R6.64]   | w0
    BAR.SYNC 0x0                 | ?0
    EXIT
    """
    assert found(text, 2) == [(0, Method.SCOREBOARD, 0), (1, Method.SCOREBOARD, 0)]


def test_the_walk_stops_where_the_scoreboard_was_already_waited_for() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    FADD R5, R4, R6              | ?0
    LDG.E R8, desc[UR4][R6.64]   | w0
    BAR.SYNC 0x0                 | ?0
    EXIT
    """
    assert found(text, 3) == [(2, Method.SCOREBOARD, 0)]


def test_long_and_short_scoreboard_on_one_instruction_are_told_apart_by_the_unit() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]   | w0
    LDS R8, [R6]                 | w1
    BAR.SYNC 0x0                 | ?01
    EXIT
    """
    assert [p for p, _, _ in found(text, 2, LONG)] == [0]
    assert [p for p, _, _ in found(text, 2, SHORT)] == [1]


def test_a_software_pipelined_load_is_marked_as_loop_carried() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]       | w0
    loop:
    FADD R5, R4, R5                  | ?0
    LDG.E R4, desc[UR4][R2.64+0x80]  | w0
    ISETP.GE.AND P0, PT, R9, R10, PT
    @!P0 BRA ->loop
    EXIT
    """
    assert found(text, 1) == [(0, Method.SCOREBOARD_REGISTER, 0), (2, Method.SCOREBOARD_REGISTER, 1)]


def test_complementary_guards_end_the_search_for_a_definition() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]       | w0
    @P0 LDG.E R4, desc[UR4][R6.64]   | w1
    @!P0 LDG.E R4, desc[UR4][R8.64]  | w1
    FADD R5, R4, R5                  | ?01
    EXIT
    """
    assert [p for p, _, _ in found(text, 3)] == [1, 2]


def test_one_guarded_definition_does_not_hide_the_earlier_one() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]       | w0
    @P0 LDG.E R4, desc[UR4][R6.64]   | w0
    FADD R5, R4, R5                  | ?0
    EXIT
    """
    assert [p for p, _, _ in found(text, 2)] == [0, 1]


def test_a_guarded_wait_does_not_end_the_walk() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]       | w0
    @P0 FADD R5, R4, R5              | ?0
    FADD R6, R4, R5                  | ?0
    EXIT
    """
    assert [p for p, _, _ in found(text, 2)] == [0]


def test_a_load_without_scoreboard_is_covered_by_a_later_one() -> None:
    text = """
    LDG.E.128 R4, desc[UR4][R2.64]
    LDG.E.128 R8, desc[UR4][R2.64+0x10]  | w0
    FADD R20, R5, R20                    | ?0
    EXIT
    """
    assert [p for p, _, _ in found(text, 2)] == [0]


def test_write_after_read_blames_the_store_that_still_reads() -> None:
    text = """
    STG.E desc[UR4][R2.64], R8   | r1
    STG.E desc[UR4][R4.64], R9   | r1
    MOV R9, 0x0                  | ?1
    EXIT
    """
    assert found(text, 2) == [(1, Method.SCOREBOARD_REGISTER, 0)]


def test_cp_async_groups_blame_the_copies_of_the_group_waited_for() -> None:
    text = """
    LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]
    LDGDEPBAR                    | w0
    LDGSTS.E.BYPASS.128 [R0+0x800], desc[UR4][R2.64+0x80]
    LDGDEPBAR                    | w0
    DEPBAR.LE SB0, 0x1
    BAR.SYNC 0x0
    EXIT
    """
    assert found(text, 5) == [(0, Method.GROUP, 0)]
    assert found(text.replace("SB0, 0x1", "SB0, 0x0"), 5) == [(0, Method.GROUP, 0), (2, Method.GROUP, 0)]


def test_a_commit_per_loop_pass_is_waited_for_some_passes_later() -> None:
    text = """
    loop:
    LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]
    LDGDEPBAR                    | w0
    DEPBAR.LE SB0, 0x2
    BAR.SYNC 0x0
    @P0 BRA ->loop
    EXIT
    """
    (only,) = found(text, 3)
    assert only[:2] == (0, Method.GROUP)
    assert only[2] >= 2


def test_an_mbarrier_wait_leads_to_the_bulk_copies() -> None:
    text = """
    UBLKCP.S.G [UR8], [UR4], UR6
    wait:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR10], RZ  | w0
    @!P0 BRA ->wait                               | ?0
    EXIT
    """
    blamed = ProducerFinder(function(text)).find(2, LONG)
    assert [(b.position, b.method, b.chain) for b in blamed] == [(0, Method.GROUP, (1,))]


def test_a_pointer_chase_shows_its_chain() -> None:
    text = """
    LDG.E.64 R2, desc[UR4][R8.64]  | w0
    IADD3 R4, P0, R2, 0x10, RZ     | ?0
    IADD3.X R5, RZ, R3, RZ, P0, !PT
    LDG.E R6, desc[UR4][R4.64]     | w1
    FADD R7, R6, R7                | ?1
    EXIT
    """
    (only,) = ProducerFinder(function(text)).find(4, LONG)
    assert (only.position, only.chain) == (3, (0,))


def test_barrier_samples_after_the_barrier_blame_the_barrier() -> None:
    text = "BAR.SYNC 0x0\nNOP\nIADD3 R1, R1, 0x1, RZ\nEXIT"
    assert found(text, 2, WarpState.BARRIER) == [(0, Method.SELF, 0)]


def test_wait_blames_the_fixed_latency_before_it() -> None:
    (only,) = ProducerFinder(function("FFMA R0, R0, R1, R2 | s4\nFFMA R0, R0, R1, R2\nEXIT")).find(1, WarpState.WAIT)
    assert (only.position, only.note) == (0, "stall count 4")


def test_without_scheduling_codes_register_def_use_finds_the_load() -> None:
    text = """
    LDG.E R4, desc[UR4][R2.64]
    MOV R9, R4
    EXIT
    """
    assert found(text, 1) == [(0, Method.REGISTER, 0)]


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("LDG.E.128 R8, desc[UR14][R4.64]", "R4 R5 UR14 UR15", "R8 R9 R10 R11"),
        ("STG.E.64 desc[UR4][R2.64+0x10], R6", "R2 R3 R6 R7 UR4 UR5", ""),
        ("IADD3 R4, P0, R4, UR8, RZ", "R4 UR8", "R4 P0"),
        ("IADD3.X R5, R5, UR9, R9, P0, !PT", "R5 R9 UR9 P0", "R5"),
        ("ISETP.GE.AND P0, PT, R15, UR4, PT", "R15 UR4", "P0"),
        ("@!P1 LOP3.LUT P0, RZ, R5, 0x3, RZ, 0xc0, !PT", "R5 P1", "P0"),
        ("IMAD.WIDE.U32 R4, R15, UR5, R4", "R15 UR5 R4 R5", "R4 R5"),
        ("IMMA.16816.S8.S8 R0, R4.ROW, R6.COL, RZ", "R4 R5 R6", "R0 R1 R2 R3"),
        ("HMMA.16816.F32 R0, R4, R8, R0", "R4 R5 R6 R7 R8 R9 R0 R1 R2 R3", "R0 R1 R2 R3"),
        ("DFMA R2, R4, R6, R8", "R4 R5 R6 R7 R8 R9", "R2 R3"),
        ("SHFL.BFLY PT, R3, R2, 0x10, 0x1f", "R2", "R3"),
        ("LDS.U.128 R4, [R2+UR4+0x10]", "R2 UR4", "R4 R5 R6 R7"),
        ("LDC R1, c[0x0][R3+0x28]", "R3", "R1"),
        ("FADD R0, -R1, |R2|", "R1 R2", "R0"),
        ("ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], R7", "R2 R3 R7 UR4 UR5", "R5"),
        ("LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64], P0", "R0 R2 R3 UR4 UR5 P0", ""),
    ],
)
def test_registers_read_and_written(text: str, reads: str, writes: str) -> None:
    kinds = {"R": 0, "UR": 1000, "P": 2000, "UP": 3000}

    def numbers(names: str) -> set[int]:
        return {kinds[n.rstrip("0123456789")] + int(n.lstrip("URP")) for n in names.split()}

    access = access_of(function(text).instructions[0])
    assert access.reads == numbers(reads)
    assert access.writes == numbers(writes)


def test_live_registers_of_a_small_function() -> None:
    f = function(
        """
        MOV R0, 0x1
        MOV R1, 0x2
        FADD R2, R0, R1
        STG.E desc[UR4][R4.64], R2
        EXIT
        """
    )
    # R4 and R5 hold the address throughout.
    assert DefUse(FlowGraph(f)).live_counts == (3, 4, 5, 3, 0)


# A random program: blocks of loads, waits and arithmetic with random branches between them.


@st.composite
def programs(draw: st.DrawFn) -> str:
    blocks = draw(st.integers(2, 5))
    lines: list[str] = []
    for b in range(blocks):
        lines.append(f"b{b}:")
        for _ in range(draw(st.integers(1, 5))):
            kind = draw(st.sampled_from(("load", "use", "math")))
            r, q, sb = draw(st.integers(4, 9)), draw(st.integers(4, 9)), draw(st.integers(0, 2))
            if kind == "load":
                lines.append(f"LDG.E R{r}, desc[UR4][R2.64] | w{sb}")
            elif kind == "use":
                lines.append(f"FADD R{q}, R{r}, R{q} | ?{sb}")
            else:
                lines.append(f"IADD3 R{q}, R{r}, 0x1, RZ")
        if draw(st.booleans()):
            lines.append(f"@P0 BRA ->b{draw(st.integers(0, blocks - 1))}")
    lines.append("EXIT")
    return "\n".join(lines)


@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(0, 99))
def test_the_order_of_basic_blocks_does_not_change_the_causes(text: str, seed: int) -> None:
    f = function(text)
    graph = FlowGraph(f)
    moved, new_of = shuffled_blocks(f, [list(range(a, b)) for a, b in graph.blocks], seed)
    here, there = ProducerFinder(f), ProducerFinder(moved)
    for position in range(len(f.instructions)):
        one = {(new_of[b.position], b.method) for b in here.find(position, LONG)}
        other = {(b.position, b.method) for b in there.find(new_of[position], LONG)}
        assert one == other


@settings(max_examples=150, deadline=None)
@given(programs())
def test_every_producer_reaches_its_consumer_and_sets_what_it_waits_for(text: str) -> None:
    f = function(text)
    finder = ProducerFinder(f)
    reach: dict[int, set[int]] = {}
    for start in range(len(f.instructions)):
        seen: set[int] = set()
        work = list(finder.graph.successors[start])
        while work:
            at = work.pop()
            if at not in seen:
                seen.add(at)
                work += finder.graph.successors[at]
        reach[start] = seen
    for position, instruction in enumerate(f.instructions):
        for b in finder.find(position, LONG):
            assert position in reach[b.position]
            control, own = f.instructions[b.position].control, instruction.control
            assert control is not None
            assert own is not None
            if b.method is not Method.REGISTER:
                assert set(control.sets) & set(own.waits) or control.write_barrier is None
