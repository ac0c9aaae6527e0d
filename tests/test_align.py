import itertools
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sass_builder import function

from profiler.accounting import account
from profiler.align import align, explain_by_region, normalised, with_regions
from profiler.attribution import attribute_launch
from profiler.blame import OUTSIDE, UNMARKED, Hot, Place, Row
from profiler.books import Account
from profiler.by_region import ISSUED_AGAIN, NOT_SAMPLED, Alignment, RegionExplanation
from profiler.code import Code, Function, Instruction
from profiler.compare import INSTRUCTIONS, LATENCY, Comparison, explain
from profiler.errors import ReportError
from profiler.model import Report, Work
from profiler.ncu_parse import load
from profiler.vocabulary import WarpState, metrics_for_attribution

DEMO = Path(__file__).parent / "captures" / "trial"
REGIONS = (DEMO / "q6k.regions.toml").read_text()
STATES = [s.value for s in WarpState]


def attributed(report: Report, work: Work | None = None) -> Hot:
    return attribute_launch(report, report.launches[0], work=work, toml=REGIONS).hot


@pytest.fixture(scope="module")
def reports() -> tuple[Report, Report]:
    before, after = (
        load(DEMO / f"q6k_{x}_loads.sm90.ncu-rep", metrics=metrics_for_attribution()) for x in ("byte", "wide")
    )
    return before, after


@pytest.fixture(scope="module")
def demo(reports: tuple[Report, Report]) -> tuple[Hot, Hot]:
    return attributed(reports[0]), attributed(reports[1])


def explained(before: Hot, after: Hot) -> tuple[Comparison, RegionExplanation]:
    c = explain(before.account, after.account, force=True)
    return c, explain_by_region(c, before, after)


def assert_closes(c: Comparison, x: RegionExplanation) -> None:
    """The parts give the comparison's own terms: each leaf list to a part in 10^9 of the largest term."""
    scale = 1e-9 * max([1.0, *(abs(t.delta_ns) for t in c.factors)])
    factors = {t.factor: t for t in c.factors}
    if x.instructions:
        total = math.fsum(t.delta_ns for t in x.instructions)
        assert total == pytest.approx(factors[INSTRUCTIONS].delta_ns, abs=scale)
        assert sum(t.before for t in x.instructions) == c.before.issued_instructions
        assert sum(t.after for t in x.instructions) == c.after.issued_instructions
    for leaves in (x.producers, x.producer_kinds):
        if not leaves:
            continue
        terms = {t.detail: t for t in c.terms if t.factor == LATENCY}
        for state in STATES:
            if state not in terms:
                continue
            mine = [t for t in leaves if t.state.value == state]
            assert math.fsum(t.effect.value for t in mine) == pytest.approx(terms[state].delta_ns, abs=scale)
            assert math.fsum(t.before.value for t in mine) == pytest.approx(terms[state].before, abs=1e-9)
            assert math.fsum(t.after.value for t in mine) == pytest.approx(terms[state].after, abs=1e-9)
        residual = terms["residual"].delta_ns
        total = math.fsum(t.effect.value for t in leaves) + residual
        assert total == pytest.approx(factors[LATENCY].delta_ns, abs=scale)


def test_the_demo_pair_closes_and_the_weights_explain_it(demo: tuple[Hot, Hot]) -> None:
    c, x = explained(*demo)
    assert_closes(c, x)
    assert not x.absent
    assert not x.problems
    top = x.instructions[0]
    assert (top.region, top.before, top.after) == ("weights", 934722432, 103459776)
    assert top.share_pct == pytest.approx(93.0, abs=0.1)
    issued = {t.region: t for t in x.instructions}
    assert issued[ISSUED_AGAIN].before == 1312756674 - 1312744440
    assert OUTSIDE not in issued
    waits = {t.region: t for t in x.producers if t.state is WarpState.LONG_SCOREBOARD}
    weights = waits["weights"]
    assert weights.mostly == "global load"
    assert weights.change.value == pytest.approx(-2.397, abs=0.01)
    assert weights.change.standard_error == pytest.approx(0.008, abs=0.001)
    assert weights.change.value == min(t.change.value for t in waits.values())
    # What the weights no longer cost is more than the whole: loads of other regions wait longer for each instruction.
    assert weights.change.value < 2.2589 - 3.7052
    assert waits["scales"].change.value > 0


def test_the_standard_error_is_that_of_the_share_times_the_counted_cycles(demo: tuple[Hot, Hot]) -> None:
    _, x = explained(*demo)
    term = next(t for t in x.producers if (t.state, t.region) == (WarpState.LONG_SCOREBOARD, "weights"))
    for side, hot in ((term.before, demo[0]), (term.after, demo[1])):
        n = sum(r.samples for r in hot.rows if r.state is WarpState.LONG_SCOREBOARD)
        cycles = hot.account.states[WarpState.LONG_SCOREBOARD]
        p = side.value / cycles
        assert side.standard_error == pytest.approx(cycles * math.sqrt(p * (1 - p) / n))
    ratio = term.effect.value / term.change.value
    assert term.effect.standard_error == pytest.approx(
        ratio * math.hypot(term.before.standard_error, term.after.standard_error)
    )


def test_the_sentence_names_the_region(demo: tuple[Hot, Hot]) -> None:
    c = with_regions(explain(demo[0].account, demo[1].account), *demo)
    assert c.by_region is not None
    assert "fewer instructions (-64.5 %, of which weights -63.3 %)" in c.sentence
    assert "long_scoreboard on weights alone -26.4 %" in c.sentence


def test_backwards_changes_only_the_signs(demo: tuple[Hot, Hot]) -> None:
    _, there = explained(*demo)
    _, back = explained(demo[1], demo[0])
    assert {t.region: -t.delta_ns for t in there.instructions} == pytest.approx(
        {t.region: t.delta_ns for t in back.instructions}, abs=1e-6
    )
    for name in ("producers", "producer_kinds"):
        forth = {(t.state, t.region, t.kind): t for t in getattr(there, name)}
        for t in getattr(back, name):
            other = forth[t.state, t.region, t.kind]
            assert t.effect.value == pytest.approx(-other.effect.value, abs=1e-6)
            assert t.effect.standard_error == pytest.approx(other.effect.standard_error, abs=1e-6)


def test_a_launch_against_itself_matches_fully_and_explains_nothing(demo: tuple[Hot, Hot]) -> None:
    c, x = explained(demo[0], demo[0])
    assert_closes(c, x)
    assert all(t.delta_ns == 0 and t.share_pct is None for t in x.instructions)
    assert all(t.effect.value == 0 for t in x.producers)
    found = x.alignment
    assert len(found.matched) == len(found.pairs) == 1192
    assert not any(p.moved for p in found.pairs)
    assert all(p.before == p.after for p in found.pairs)
    assert not found.kinds
    assert not found.changed()


def test_per_work_splits_the_same_terms_per_gmac(reports: tuple[Report, Report]) -> None:
    work = Work.gemm(2630, 3584, 3584), Work.gemm(2630, 3584, 1792)
    hots = attributed(reports[0], work[0]), attributed(reports[1], work[1])
    c = explain(hots[0].account, hots[1].account, per_work=True)
    x = explain_by_region(c, *hots)
    assert_closes(c, x)
    # Half the work in the same time: a region that executes as often costs twice as much per GMAC.
    assert next(t for t in x.instructions if t.region == "mma").delta_ns > 0


def test_every_instruction_is_in_the_alignment_once(demo: tuple[Hot, Hot]) -> None:
    found = align(*demo)
    for side, hot in (("before", demo[0]), ("after", demo[1])):
        places = [getattr(p, side) for p in found.pairs if getattr(p, side) is not None]
        offsets = [p.instruction.offset for p in places]
        assert sorted(offsets) == [i.offset for f in hot.code.functions.values() for i in f.instructions]
        executed = sum(getattr(p, f"executed_{side}") for p in found.pairs)
        assert executed == sum(hot.executed.values())
    for p in found.matched:
        assert p.before is not None
        assert p.after is not None
        assert p.before.region == p.after.region == p.region
        assert normalised(p.before.instruction) == normalised(p.after.instruction)
    changed = found.changed(5)
    assert {p.region for p in changed} == {"weights"}
    assert any(k.sass == "LDG.E.U8 R, desc[UR][R.64]" and k.instructions_after == 0 for k in found.kinds[:5])


def without(a: Account, *metrics: str) -> Account:
    kept = {n: m for n, m in a.launch.metrics.items() if not any(n.startswith(x) for x in metrics)}
    return account(replace(a.launch, metrics=kept))


@pytest.mark.parametrize("side", [0, 1])
def test_missing_samples_leave_the_instructions_and_are_named(demo: tuple[Hot, Hot], side: int) -> None:
    hots = list(demo)
    bare = without(hots[side].account, "smsp__pcsamp")
    hots[side] = replace(hots[side], account=bare, rows=())
    c, x = explained(hots[0], hots[1])
    assert_closes(c, x)
    assert x.instructions
    assert not x.producers
    assert not x.producer_kinds
    (absent,) = x.absent
    assert absent.quantity == "cy/inst by producer"
    assert absent.reason == f"{('before', 'after')[side]}: no PC samples (ncu --section SourceCounters)"


def test_missing_code_is_named_and_nothing_is_invented(demo: tuple[Hot, Hot]) -> None:
    rows = tuple(replace(r, place=None, producers=()) for r in demo[1].rows)
    code = Code("", 0, {}, ("the report holds no machine code",))
    bare = replace(demo[1], code=code, rows=rows, executed={}, region_of={}, problems=code.problems)
    c, x = explained(demo[0], bare)
    assert not x.instructions
    assert not x.producers
    assert [(a.quantity, a.reason) for a in x.absent] == [
        ("instructions by region", "after: no machine code"),
        ("cy/inst by producer", "after: no machine code"),
    ]
    assert x.problems == ("after: the report holds no machine code",)
    assert not x.alignment.matched
    assert all(p.change is None for p in x.alignment.pairs)
    assert with_regions(c, demo[0], bare).sentence == c.sentence


def test_without_issued_instructions_or_states_both_splits_are_named(demo: tuple[Hot, Hot]) -> None:
    gone = ("smsp__inst_issued", "smsp__average_warp", "smsp__average_warps", "smsp__issue", "smsp__cycles_active")
    hots = tuple(replace(h, account=without(h.account, *gone)) for h in demo)
    _, x = explained(hots[0], hots[1])
    assert {a.quantity for a in x.absent} == {"instructions by region", "cy/inst by producer"}
    assert not x.instructions
    assert not x.producers


def test_regions_of_different_sources_are_a_problem(demo: tuple[Hot, Hot]) -> None:
    _, x = explained(demo[0], replace(demo[1], region_source="inlined functions"))
    assert x.problems == ("regions come from region file before and from inlined functions after",)


def test_a_counted_state_without_samples_is_not_given_to_anyone(demo: tuple[Hot, Hot]) -> None:
    rows = tuple(r for r in demo[1].rows if r.state is not WarpState.WAIT)
    c, x = explained(demo[0], replace(demo[1], rows=rows))
    assert_closes(c, x)
    waits = {t.region: t for t in x.producers if t.state is WarpState.WAIT}
    assert waits[NOT_SAMPLED].before.value == 0.0
    assert waits[NOT_SAMPLED].after.value == demo[1].account.states[WarpState.WAIT]
    assert waits["weights"].after.value == 0.0


def test_code_that_the_report_lacks_is_outside_the_kernel(demo: tuple[Hot, Hot]) -> None:
    executed = {k: n for k, n in demo[1].executed.items() if demo[1].region_of[k] != "epilogue"}
    lost = sum(demo[1].executed.values()) - sum(executed.values())
    c, x = explained(demo[0], replace(demo[1], executed=executed))
    assert_closes(c, x)
    terms = {t.region: t for t in x.instructions}
    assert (terms[OUTSIDE].before, terms[OUTSIDE].after) == (0, lost)
    assert terms["epilogue"].after == 0


def in_regions(row: Row, named: dict[tuple[str, int], str]) -> Row:
    def renamed(p: Place) -> Place:
        return replace(p, region=named[p.function, p.instruction.offset])

    assert row.place is not None
    producers = tuple(replace(p, place=renamed(p.place)) for p in row.producers)
    return replace(row, place=renamed(row.place), producers=producers)


@pytest.mark.parametrize("seed", range(8))
def test_any_partition_into_regions_closes(demo: tuple[Hot, Hot], seed: int) -> None:
    """The property: whatever the regions are, and whichever exist on one side only, the parts give the terms."""
    rng = random.Random(seed)
    hots = []
    for n, hot in enumerate(demo):
        names = [f"r{i}" for i in range(rng.randint(1, 12))] + [f"only {n}"]
        named = {key: rng.choice(names) for key in hot.region_of}
        rows = tuple(in_regions(r, named) for r in hot.rows if rng.random() < 0.8)
        executed = {k: rng.randint(0, 2 * count) for k, count in hot.executed.items()}
        hots.append(replace(hot, rows=rows, executed=executed, region_of=named))
    c, x = explained(hots[0], hots[1])
    assert_closes(c, x)
    assert {"only 0", "only 1"} <= {t.region for t in x.instructions}
    one_sided = [p for p in x.alignment.pairs if p.region == "only 0"]
    assert one_sided
    assert all(p.after is None for p in one_sided)


def test_pairs_of_strangers_close_or_name_what_is_missing(corpus_files: list[Path]) -> None:
    hots = []
    for file in corpus_files:
        try:
            report = load(file, metrics=metrics_for_attribution())
            hots += [attribute_launch(report, x).hot for x in report.launches[:1]]
        except ReportError:
            continue
    split = 0
    for before, after in itertools.pairwise(hots):
        c, x = explained(before, after)
        assert_closes(c, x)
        names = {a.quantity for a in x.absent}
        assert bool(x.instructions) != ("instructions by region" in names)
        assert bool(x.producers) != ("cy/inst by producer" in names)
        split += bool(x.instructions and x.producers)
    assert split > 5


SASS = """
    S2R R0, SR_TID.X | w0
    MOV R1, 0x400
    loop:
    IMAD.WIDE R4, R0, 0x4, R2 | ?0
    LDG.E R6, desc[UR4][R4.64+0x20] | w1
    LDS R7, [R0+UR4+0x10] | w2
    LDC R9, c[0x0][0x218]
    FFMA R8, R6, 0.5, R7 | ?1 ?2
    ISETP.GE.AND P0, PT, R8, 0x7f, PT
    @!P0 BRA ->loop
    LOP3.LUT R5, R5, 0xfffffffc, RZ, 0xc0, !PT
    STG.E desc[UR4][R4.64], R8
    EXIT
"""
RENUMBER = re.compile(r"\b(R|UR|P)(\d+)\b")


def one_function(f: Function, hot: Hot, region: str = "all", count: int = 1) -> Hot:
    """The same launch, as if its code were this function."""
    return replace(
        hot,
        code=Code("", 90, {f.name: f}),
        rows=(),
        executed={(f.name, i.offset): count for i in f.instructions},
        region_of={(f.name, i.offset): region for i in f.instructions},
    )


def renamed(text: str) -> str:
    text = RENUMBER.sub(lambda m: f"{m[1]}{int(m[2]) + 3}", text)
    return text.replace("0x20]", "0x1a0]").replace("0x218", "0x230").replace("0xfffffffc", "0xfffffff8")


def matches(before: Function, after: Function, hot: Hot) -> Alignment:
    return align(one_function(before, hot), one_function(after, hot, count=3))


def test_renamed_registers_and_shifted_offsets_match_completely(demo: tuple[Hot, Hot]) -> None:
    before = function(SASS)
    after = function("NOP\nNOP\n" + renamed(SASS), name="k_v2", address=0x7F0000)
    assert after.instructions[-1].offset == before.instructions[-1].offset + 32
    found = matches(before, after, demo[0])
    assert len(found.matched) == len(before.instructions)
    assert not found.only_before
    assert [p.sass for p in found.only_after] == ["NOP", "NOP"]
    assert not any(p.moved for p in found.pairs)
    assert all(p.change == 2 for p in found.matched)
    assert all(p.change == 3 for p in found.only_after)


def test_a_rescheduled_instruction_has_moved_and_is_no_change(demo: tuple[Hot, Hot]) -> None:
    lines = [x for x in SASS.strip().splitlines() if ":" not in x and "BRA" not in x]
    before, after = function("\n".join(lines)), function("\n".join([lines[4], *lines[:4], *lines[5:]]))
    found = matches(before, after, demo[0])
    assert len(found.matched) == len(found.pairs) == len(lines)
    assert [p.sass for p in found.pairs if p.moved] == ["LDS R7, [R0+UR4+0x10]"]


def test_the_same_code_in_another_region_is_not_the_same(demo: tuple[Hot, Hot]) -> None:
    f = function(SASS)
    found = align(one_function(f, demo[0], "left"), one_function(f, demo[0], "right"))
    assert not found.matched
    assert {p.region for p in found.only_before} == {"left"}
    assert {p.region for p in found.only_after} == {"right"}


def test_a_huge_region_is_matched_by_counts(demo: tuple[Hot, Hot]) -> None:
    body = [random.Random(7).choice(["FADD R1, R2, R3", "FMUL R1, R2, R3", "MOV R1, R2"]) for _ in range(5000)]
    found = matches(function("\n".join(body)), function("\n".join([*body[1:], "NOP"])), demo[0])
    assert len(found.matched) == 4999
    assert len(found.only_before) == len(found.only_after) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LDG.E.U8 R4, desc[UR12][R4.64+0x80]", "LDG.E.U8 R, desc[UR][R.64]"),
        ("LDG.E.U8 R4, desc[UR12][R4.64+-0x80]", "LDG.E.U8 R, desc[UR][R.64]"),
        ("LDS R7, [R0+UR4+0x10]", "LDS R, [R+UR]"),
        ("LDC R1, c[0x0][0x28]", "LDC R, c[0x0][#]"),
        ("LDC R1, c[0x3][R2]", "LDC R, c[0x3][R]"),
        ("LOP3.LUT R5, R5, 0xfffffffc, RZ, 0xc0, !PT", "LOP3.LUT R, R, #, RZ, 0xc0, !PT"),
        ("VIADD R1, R1, -0x8", "VIADD R, R, -0x8"),
        ("FMUL R7, R9, 0.63661974668502807617", "FMUL R, R, #"),
        ("FADD R1, -|R3|, 1", "FADD R, -|R|, 1"),
        ("BSSY B0, `(.L_x_0)", "BSSY B, label"),
        ("MOV R2, 32@lo((k4 + .L_x_3@srel))", "MOV R, label"),
        ("IMMA.16816.S8.S8 R4, R2.ROW, R3.COL, R4", "IMMA.16816.S8.S8 R, R.ROW, R.COL, R"),
        ("DEPBAR.LE SB0, 0x0, {1,2}", "DEPBAR.LE SB, 0x0, {1,2}"),
        ("S2R R2, SR_TID.X", "S2R R, SR_TID.X"),
        ("IADD3 R4, P1, R10, UR16, RZ", "IADD3 R, P, R, UR, RZ"),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    opcode, _, operands = text.partition(" ")
    assert normalised(Instruction(0, 0, None, opcode, tuple(operands.split(", ")), None)) == expected


def test_a_guard_is_part_of_the_normal_form() -> None:
    guarded = Instruction(0, 0, "!P3", "EXIT", (), None)
    assert normalised(guarded) == "@!P EXIT"


def test_unmarked_code_is_a_region_but_no_name_for_the_sentence(demo: tuple[Hot, Hot]) -> None:
    hots = [replace(h, region_of=dict.fromkeys(h.region_of, UNMARKED)) for h in demo]
    c = explain(hots[0].account, hots[1].account)
    told = with_regions(c, hots[0], hots[1])
    assert told.by_region is not None
    assert told.by_region.instructions[0].region == UNMARKED
    assert "(unmarked) -" not in told.sentence
