"""Hot -> levers: for each source line, what removing it and every wait for it could win at most (pure).

A launch's active time is I * L / W. Without a line, its warps spend none of the warp time that is
blamed on it, so L * I falls by the line's share of the samples, no further; and what remains to be issued takes one
issue slot each, and its cycles of the pipes (pipes.py), so no more than the cycles it does not need can go. The ceiling
is the smaller of both. It is not the line's share of the *lost* slots: a slot is lost when every warp waits, and
freeing a third of them may fill it. Between nothing and the ceiling, what is to be expected is told by how warps
compete for slots (contention.py). A multiprocessor that ran dry may have waited for one that the culprit held up, so
its idle time is part of every ceiling; it is expected to shrink as the rest does.

A line is a stack of source lines: a function inlined in two places is two culprits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from profiler.blame import Hot, Place, Producer, Row
from profiler.books import Sampled
from profiler.contention import rate_after
from profiler.lanes import idle_lanes
from profiler.pipes import Pipe, pipe_cycles
from profiler.vocabulary import WarpState

# Points that a line's price must differ by between two orders of waiting to be one of those waited for together.
MOVED = 5.0
# Joint loads end together when, last in line, each takes less than this part of the wait.
TOGETHER = 0.1
Line = tuple[object, ...]
Key = tuple[str, int]


class Kind(StrEnum):
    """What a lever pulls at."""

    LINE = "line"
    IDLE_LANES = "idle_lanes"
    NO_WARPS = "no_warps"


@dataclass(frozen=True, slots=True)
class Lever:
    """One culprit and the most that removing it could win, in per cent of the launch's duration.

    ``places``: an instruction of each guilty line: several where they are waited for together, none for NO_WARPS.
    ``states``: per cent of the launch's warp time by warp state, falling: waits blamed on the line and its own issuing.
    ``expected``: what it would win when the remaining warps compete for issue slots as they do now; at most the
    ceiling. ``waiting`` and ``waiting_expected``: the same if its instructions stayed and only its ``state`` went.
    ``floor``: what binds the ceiling: warp time, the issue slots of the remaining instructions, or their cycles of a
    pipe. For IDLE_LANES the place is the branch that switches lanes off, and what could go is the idle lanes' share of
    what is behind it. ``known`` is False where ``expected`` is no more than a bound (see ``least``).
    """

    kind: Kind
    places: tuple[Place, ...]
    states: Mapping[WarpState, float]
    ceiling: Sampled
    expected: float
    waiting: Sampled
    waiting_expected: float
    floor: str
    known: bool = True

    @property
    def state(self) -> WarpState | None:
        """The state that takes most of its warp time, a stall where there is one of a tenth of it."""
        return _leading(self.states)

    @property
    def lines(self) -> frozenset[tuple[str, int]]:
        """Every (file, line) on the inline stacks of its places."""
        return frozenset((f.file, f.line) for p in self.places for f in p.instruction.frames)


@dataclass(frozen=True, slots=True)
class MoreWarps:
    """What covering every wait with more warps could win, in per cent of the duration: at most, and as expected.

    ``active`` warps a scheduler there were, ``possible`` is what the hardware holds.
    """

    active: float
    possible: int
    ceiling: float
    expected: float


def _leading(states: Mapping[WarpState, float]) -> WarpState | None:
    stalls = {s: x for s, x in states.items() if s.is_stall}
    if stalls and max(stalls.values()) >= 0.1 * sum(states.values()):
        return max(stalls, key=lambda s: stalls[s])
    return max(states, key=lambda s: states[s], default=None)


def levers_of(hot: Hot) -> tuple[Lever, ...]:
    """Return the levers of a launch, the largest expected gain first; none without samples of the kernel's code."""
    if not hot.samples:
        return ()
    price = _Price(hot)
    found = [*_lines(hot, price), *_idle(hot, price), *_no_warps(hot)]
    return tuple(sorted(found, key=lambda lever: (-lever.expected, -lever.ceiling.value, -sum(lever.states.values()))))


def more_warps(hot: Hot) -> MoreWarps | None:
    """Return what more warps could win while there is room for them; None where that was not collected.

    With n times the warps a latency-bound launch is n times as fast, until every slot issues or a pipe is full.
    """
    a, most = hot.account, hot.account.launch.device.max_warps_per_scheduler
    if a.active_warps is None or a.issue_rate is None or most is None:
        return None
    price = _Price(hot)
    win = max(0.0, min(1.0 - price.needed({})[0], 1.0 - a.active_warps / most))
    ceiling = 100.0 * (1.0 - price.active * (1.0 - win))
    return MoreWarps(a.active_warps, most, ceiling, min(ceiling, 100.0 * min(win, price.gain_of_warps(most))))


def least(oldest: Sequence[Lever], youngest: Sequence[Lever]) -> tuple[Lever, ...]:
    """Return the levers of a launch from two captures whose joint waits were split, the oldest and the youngest first.

    A load that is waited for first is blamed for what the others need as well: the lesser of both expectations is its
    own, the greater ceiling bounds it. Where whatever is waited for last takes nothing beyond, the loads end together:
    one holds up the other (loads that miss L1 return in order), the older one is blamed, and what its removal would win
    is not ``known``: the younger one's own latency never shows.
    """

    def key(lever: Lever) -> tuple[Kind, frozenset[Line]]:
        return lever.kind, frozenset(map(line_of, lever.places))

    second = {key(lever): lever for lever in youngest}
    pairs = [(lever, second.get(key(lever), lever)) for lever in oldest]
    moved = [pair for pair in pairs if abs(pair[0].expected - pair[1].expected) > MOVED]
    largest = max((max(a.expected, b.expected) for a, b in moved), default=0.0)
    together = bool(moved) and all(min(a.expected, b.expected) < TOGETHER * largest for a, b in moved)
    found = []
    for a, b in pairs:
        ceiling = max(a.ceiling, b.ceiling, key=lambda c: c.value)
        own = a if together else min(a, b, key=lambda lever: lever.expected)
        known = not (together and (a, b) in moved)
        found.append(replace(own, ceiling=ceiling, known=known))
    return tuple(sorted(found, key=lambda lever: -lever.expected))


def line_of(place: Place) -> Line:
    """Return the identity of a source line: the inline stack, or the instruction where there is no line table."""
    frames = place.instruction.frames
    return tuple((f.file, f.line) for f in frames) or (place.function, place.instruction.offset)


class _Price:
    """What can be won of one launch: its warp time, issue slots and pipes."""

    def __init__(self, hot: Hot) -> None:
        self.hot = hot
        a = hot.account
        # Counters of different passes: on short launches the share may come out above 1.
        self.active = min(1.0, a.active_share) if a.active_share is not None else 1.0
        self.rate = a.issue_rate or 0.0
        self.instructions: dict[Line, list[Key]] = defaultdict(list)
        self.pipe: dict[Key, tuple[Pipe, float]] = {}
        for function in hot.code.functions.values():
            for instruction in function.instructions:
                key = (function.name, instruction.offset)
                if hot.executed.get(key):
                    self.instructions[line_of(Place(function.name, instruction, ""))].append(key)
                    found = pipe_cycles(instruction.opcode, a.launch.device.compute_capability)
                    if found is not None:
                        self.pipe[key] = found
        self.executed = sum(hot.executed.values())
        self.cycles: dict[Pipe, float] = defaultdict(float)
        for key, (pipe, cycles) in self.pipe.items():
            self.cycles[pipe] += cycles * hot.executed[key]
        self.stalled = sum(r.samples for r in hot.rows if r.state.is_stall)

    def lever(
        self, kind: Kind, places: tuple[Place, ...], states: Mapping[WarpState, float], gone: Mapping[Key, float]
    ) -> Lever:
        """Price a culprit by ``states`` (samples) and the part (0..1) of each instruction that would be gone."""
        total = self.hot.samples
        samples = min(sum(states.values()), total)
        stalled = min(sum(n for s, n in states.items() if s.is_stall), total)
        lead = _leading(states)
        led = states[lead] if lead is not None and lead.is_stall else 0.0
        ceiling, floor = self._most(samples, gone)
        waiting, _ = self._most(led, {})
        return Lever(
            kind=kind,
            places=places,
            states={s: 100.0 * n / total for s, n in sorted(states.items(), key=lambda item: -item[1])},
            ceiling=ceiling,
            expected=max(0.0, min(ceiling.value, self._expected(samples, stalled, gone))),
            waiting=waiting,
            waiting_expected=max(0.0, min(waiting.value, self._expected(led, led, {}))),
            floor=floor,
        )

    def needed(self, gone: Mapping[Key, float]) -> tuple[float, str]:
        """Return the part (0..1) of the active cycles that the remaining instructions need, and what needs it."""
        executed = self.hot.executed
        left = self.executed - sum(part * executed.get(key, 0) for key, part in gone.items())
        needs: list[tuple[float, str]] = [(left, "issue slots")]
        for pipe, cycles in self.cycles.items():
            spared = sum(part * executed[k] * self.pipe[k][1] for k, part in gone.items() if self._on(k, pipe))
            needs.append((cycles - spared, f"{pipe.value} pipe"))
        most, what = max(needs, key=lambda need: need[0])
        return (min(1.0, self.rate * most / self.executed), what) if self.executed else (self.rate, "issue slots")

    def gain_of_warps(self, warps: float) -> float:
        """Return what so many warps would win by the competition for slots, as a part of the active cycles."""
        a = self.hot.account
        latency, now = a.warp_cycles_per_issued_instruction, a.active_warps
        if not (latency and now and self.rate and self.hot.samples):
            return 1.0
        think = latency * self.stalled / self.hot.samples
        return 1.0 - self.rate / rate_after(self.rate, now, think, think, warps)

    def _on(self, key: Key, pipe: Pipe) -> bool:
        found = self.pipe.get(key)
        return found is not None and found[0] is pipe

    def _most(self, samples: float, gone: Mapping[Key, float]) -> tuple[Sampled, str]:
        """Return the ceiling in per cent of the duration, and what binds it; where that was counted, without error."""
        share = Sampled.share(samples, self.hot.samples, 100.0 * self.active)
        idle = 100.0 * (1.0 - self.active)
        needed, what = self.needed(gone)
        free = 100.0 * self.active * (1.0 - needed)
        if share.value <= free:
            return Sampled(idle + share.value, share.standard_error), "warp time"
        return Sampled(idle + free, 0.0), what

    def _expected(self, samples: float, stalled: float, gone: Mapping[Key, float]) -> float:
        """Return the expected gain in per cent: the remaining instructions, at the issue rate of what still stalls."""
        a = self.hot.account
        latency, warps, total = a.warp_cycles_per_issued_instruction, a.active_warps, self.hot.samples
        part = sum(part * self.hot.executed.get(key, 0) for key, part in gone.items())
        left = 1.0 - (part / self.executed if self.executed else 0.0)
        if not (latency and self.rate and warps) or left <= 0.0:
            return 100.0 * samples / total
        think = latency * self.stalled / total
        after = latency * max(0.0, self.stalled - stalled) / total / left
        faster = rate_after(self.rate, warps, think, after)
        return 100.0 * (1.0 - left * self.rate / faster)


def _lines(hot: Hot, price: _Price) -> list[Lever]:
    cost: dict[frozenset[Line], dict[WarpState, float]] = defaultdict(lambda: defaultdict(float))
    places: dict[Line, tuple[float, Place]] = {}
    for row in hot.rows:
        for members, weight in _sets(row):
            guilty = [p.culprit for p in members]
            for place in guilty:
                line, n = line_of(place), weight * row.samples
                # The instruction shown for a line is the one that is blamed most.
                if line not in places or n > places[line][0]:
                    places[line] = (n, place)
            cost[frozenset(map(line_of, guilty))][row.state] += weight * row.samples
    levers = []
    for lines in cost:
        # Lines waited for together: what is theirs alone would go too.
        states: dict[WarpState, float] = defaultdict(float)
        for other, parts in cost.items():
            if other <= lines:
                for state, n in parts.items():
                    states[state] += n
        shown = tuple(places[line][1] for line in sorted(lines, key=lambda one: -places[one][0]))
        gone = {key: 1.0 for line in lines for key in price.instructions.get(line, ())}
        levers.append(price.lever(Kind.LINE, shown, states, gone))
    return levers


def _sets(row: Row) -> Iterable[tuple[tuple[Producer, ...], float]]:
    """Yield who is waited for and with what weight: alternatives one by one, joint producers as a set."""
    joint = tuple(p for p in row.producers if p.joint)
    for p in row.producers:
        if not p.joint:
            yield (p,), p.weight
    if joint:
        yield joint, sum(p.weight for p in joint)


def _idle(hot: Hot, price: _Price) -> list[Lever]:
    """One lever for each branch behind which lanes are idle."""
    found = idle_lanes(hot)
    if not found:
        return []
    samples: dict[Key, dict[WarpState, int]] = defaultdict(lambda: defaultdict(int))
    for row in hot.rows:
        if row.place is not None:
            samples[row.place.function, row.place.instruction.offset][row.state] += row.samples
    levers = []
    for branch, parts in found.items():
        function, position = branch
        instruction = hot.code.functions[function].instructions[position]
        place = Place(function, instruction, hot.region_of.get((function, instruction.offset), ""))
        # With full lanes the branch, and what its line sets up for it, is reached less often too.
        most = max(parts.values())
        parts = dict.fromkeys(price.instructions.get(line_of(place), ()), most) | parts
        states: dict[WarpState, float] = defaultdict(float)
        for key, idle in parts.items():
            for state, n in samples[key].items():
                states[state] += idle * n
        levers.append(price.lever(Kind.IDLE_LANES, (place,), states, parts))
    return levers


def _no_warps(hot: Hot) -> list[Lever]:
    share = hot.account.active_share
    if share is None or share >= 1.0:
        return []
    # Counted, not sampled: a scheduler without warps has none to sample.
    gone = Sampled(100.0 * (1.0 - share), 0.0)
    return [Lever(Kind.NO_WARPS, (), {}, gone, gone.value, gone, gone.value, "elapsed cycles")]
