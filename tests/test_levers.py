"""What removing a cause could win: the ceiling and the expectation, against a simulated scheduler and real launches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.attribution import attribute_report
from profiler.blame import Hot, Method, Place, Producer, Row
from profiler.contention import issue_rate, rate_after
from profiler.levers import Kind, levers_of, more_warps
from profiler.pipes import pipe_cycles
from profiler.vocabulary import WarpState

DEMO = Path(__file__).parent.parent / "profiler" / "demo"


class Scheduler:
    """Warps that run a loop of (stall cycles, cause) on a scheduler that issues one instruction a cycle, oldest first.

    A stall lasts a time of exponential distribution with that mean, rounded to cycles, as memory's do.
    """

    def __init__(self, warps: int, loop: Sequence[tuple[float, str]], turns: int = 0) -> None:
        rng = random.Random(1)
        ready = [rng.randrange(1 + int(sum(s for s, _ in loop))) for _ in range(warps)]
        step = [0] * warps
        self.cycles, self.issued, self.turns = 0, 0, turns or 10_000 // len(loop)
        self.time: dict[str, int] = {}
        self.lost: dict[str, float] = {}
        waits_for = [loop[0][1]] * warps
        while self.issued < self.turns * len(loop):
            eligible = [w for w in range(warps) if ready[w] <= self.cycles]
            for w in range(warps):
                what = waits_for[w] if ready[w] > self.cycles else "ready"
                self.time[what] = self.time.get(what, 0) + 1
                if not eligible:
                    self.lost[what] = self.lost.get(what, 0.0) + 1 / warps
            if eligible:
                w = min(eligible, key=lambda x: ready[x])
                self.issued += 1
                mean, waits_for[w] = loop[step[w]]
                ready[w] = self.cycles + 1 + round(rng.expovariate(1 / mean)) if mean else self.cycles + 1
                step[w] = (step[w] + 1) % len(loop)
            self.cycles += 1
        self.warps = warps

    @property
    def rate(self) -> float:
        return self.issued / self.cycles

    def share(self, cause: str) -> float:
        return self.time.get(cause, 0) / (self.cycles * self.warps)


LOOPS = {
    "one load": [(60.0, "load")] + [(4.0, "alu")] * 8,
    "two loads": [(60.0, "load")] + [(4.0, "alu")] * 4 + [(50.0, "other")] + [(4.0, "alu")] * 4,
    "mostly issue": [(20.0, "load")] + [(2.0, "alu")] * 16,
}


@pytest.fixture(scope="module")
def hot() -> Hot:
    return attribute_report(str(DEMO / "q6k_byte_loads.sm90.ncu-rep")).hot


def as_launch(run: Scheduler, loop: Sequence[tuple[float, str]], like: Hot) -> Hot:
    """Return what attribution would make of a simulated run, each cause a line of ``like`` and waited for."""
    function = next(iter(like.code.functions.values()))
    lines = {i.frames: i for i in function.instructions if i.frames and pipe_cycles(i.opcode, (9, 0)) is None}
    place_of = {
        what: Place(function.name, i, "") for what, i in zip(("load", "alu", "other"), lines.values(), strict=False)
    }
    rows, executed = [], {}
    for what, place in place_of.items():
        count = sum(w == what for _, w in loop) * run.issued // len(loop)
        executed[function.name, place.instruction.offset] = count
        stall = WarpState.LONG_SCOREBOARD if what == "load" else WarpState.WAIT
        for state, n in ((stall, run.time.get(what, 0)), (WarpState.SELECTED, count)):
            producer = Producer(place, 1.0, Method.SELF)
            rows.append(Row(place, state, n, 0, count, Method.SELF, (producer,)))
    ready = run.time["ready"] - run.issued
    rows.append(Row(None, WarpState.NOT_SELECTED, ready, 0, None, Method.OUTSIDE, ()))
    account = replace(
        like.account, issue_rate=run.rate, active_warps=float(run.warps), active_cycles=1.0, elapsed_cycles=1.0,
        warp_cycles_per_issued_instruction=run.warps / run.rate,
    )  # fmt: skip
    return replace(like, account=account, rows=tuple(rows), executed=executed)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
@pytest.mark.parametrize("warps", [1, 3, 8, 14])
def test_no_removal_wins_more_than_the_ceiling_and_about_what_is_expected(
    loop: list[tuple[float, str]], warps: int, hot: Hot
) -> None:
    before = Scheduler(warps, loop)
    after = Scheduler(warps, [part for part in loop if part[1] != "load"], turns=before.turns)
    gain = 100.0 * (1.0 - after.cycles / before.cycles)
    lever = next(x for x in levers_of(as_launch(before, loop, hot)) if x.state is WarpState.LONG_SCOREBOARD)
    assert gain <= lever.ceiling.value + 2.0
    assert lever.expected == pytest.approx(gain, abs=6.0)


def test_the_slots_lost_to_a_cause_are_no_bound() -> None:
    loop = LOOPS["two loads"]
    before = Scheduler(8, loop)
    after = Scheduler(8, [(0.0 if what == "load" else mean, what) for mean, what in loop])
    gain, lost = 1.0 - after.cycles / before.cycles, before.lost["load"] / before.cycles
    assert gain > 1.2 * lost
    assert gain < before.share("load")


def test_more_warps_are_worth_what_a_scheduler_with_more_warps_wins(hot: Hot) -> None:
    loop = LOOPS["one load"]
    before = Scheduler(4, loop)
    after = Scheduler(16, loop, turns=before.turns * 4)
    # Four times the work in the time of the second run.
    gain = 100.0 * (1.0 - after.cycles / 4 / before.cycles)
    more = more_warps(as_launch(before, loop, hot))
    assert more is not None
    assert gain <= more.ceiling + 1.0
    assert more.expected == pytest.approx(gain, abs=6.0)


def test_warps_share_a_scheduler() -> None:
    assert issue_rate(1, 9) == pytest.approx(0.1)
    assert issue_rate(2, 0) == pytest.approx(1.0)
    assert 0.99 < issue_rate(64, 9) <= 1.0
    rates = [issue_rate(n / 4, 20) for n in range(1, 60)]
    assert rates == sorted(rates)
    assert issue_rate(2.5, 20) == pytest.approx((issue_rate(2, 20) + issue_rate(3, 20)) / 2)
    assert rate_after(0.3, 4, 8.0, 8.0) == pytest.approx(0.3)


def test_levers_are_ranked_and_stay_within_their_ceilings(hot: Hot) -> None:
    levers, idle = levers_of(hot), 100.0 * (1.0 - (hot.account.active_share or 1.0))
    assert [x.expected for x in levers] == sorted((x.expected for x in levers), reverse=True)
    for lever in levers:
        assert 0 <= lever.expected <= lever.ceiling.value <= 100
        assert lever.waiting.value <= lever.ceiling.value + 1e-9
        if lever.kind is Kind.LINE:
            # What schedulers idle may be the culprit's doing as well.
            assert lever.ceiling.value <= sum(lever.states.values()) + idle + 1e-9


def test_every_sample_is_blamed_on_one_line_or_set_of_lines(hot: Hot) -> None:
    alone = {x.places[0].instruction.frames: x for x in levers_of(hot) if x.kind is Kind.LINE and len(x.places) == 1}
    total = sum(sum(x.states.values()) for x in alone.values())
    for x in levers_of(hot):
        if x.kind is Kind.LINE and len(x.places) > 1:
            # A set includes what is its members' alone.
            total += sum(x.states.values()) - sum(
                sum(alone[p.instruction.frames].states.values()) for p in x.places if p.instruction.frames in alone
            )
    assert total == pytest.approx(100.0, abs=1.0)


def test_more_warps_can_fill_the_empty_slots_and_no_more(hot: Hot) -> None:
    more = more_warps(hot)
    assert more is not None
    assert more.possible == 16
    active = hot.account.active_share or 1.0
    empty = (hot.account.no_eligible_pct or 0.0) * active + 100.0 * (1.0 - active)
    assert more.expected <= more.ceiling <= empty + 0.1
