"""Samples -> waiting instruction -> producer -> source line -> region (pure).

``attribute`` is the whole of it: rows of (instruction, state), each with the producers of its wait, summed into causes
and regions. Nothing is dropped: what lies outside the kernel's code, or has no producer, is a row that says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from profiler.blame import OUTSIDE, Cause, Coverage, Hot, Method, Place, Producer, RegionCost, Row
from profiler.books import Account
from profiler.code import Code, Function, Instruction
from profiler.model import LaunchProfile
from profiler.neighbours import Blamed
from profiler.producers import ProducerFinder
from profiler.regions import Regions
from profiler.uneven import uneven_positions
from profiler.vocabulary import EXECUTED_PER_PC, THREADS_PER_PC, WarpState

Key = tuple[str, int]
# What warps may execute unequally before a barrier explains its wait when it is this part of the time before it.
UNEVEN = 0.02


class _Attribution:
    """The state of one run: where samples are, what was executed, who produces."""

    def __init__(self, launch: LaunchProfile, code: Code, regions: Regions) -> None:
        self.launch = launch
        self.code = code
        self.regions = regions
        self.region_of: dict[Key, str] = {
            (f.name, i.offset): regions.region_of(i) for f in code.functions.values() for i in f.instructions
        }
        self.executed = self._counts(EXECUTED_PER_PC)
        self.threads = self._counts(THREADS_PER_PC)
        self.finders: dict[str, ProducerFinder] = {}
        self.late_paths: dict[tuple[str, int], tuple[tuple[int, ...], str, float]] = {}
        self.uneven: dict[str, frozenset[int]] = {}
        self.samples: dict[Key | None, dict[WarpState, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        keys: dict[int, Key | None] = {}
        for state in WarpState:
            for column, metric in enumerate((state.sampled_metric, state.sampled_not_issued_metric)):
                for pc, count in _per_pc(launch, metric):
                    if pc not in keys:
                        found = code.find(pc)
                        keys[pc] = None if found is None else (found[0].name, found[1].offset)
                    self.samples[keys[pc]][state][column] += count

    def _counts(self, metric: str) -> dict[Key, int]:
        """Return a metric's counts by instruction, without what lies outside the kernel's code."""
        found = ((self.code.find(pc), count) for pc, count in _per_pc(self.launch, metric))
        return {(place[0].name, place[1].offset): count for place, count in found if place is not None}

    def place(self, function: Function, instruction: Instruction) -> Place:
        """Return an instruction with its region."""
        return Place(function.name, instruction, self.region_of[function.name, instruction.offset])

    def rows(self) -> Iterable[Row]:
        """Yield a row for each (instruction, state) with samples, in program order, outside last."""
        for function in self.code.functions.values():
            for instruction in function.instructions:
                key = (function.name, instruction.offset)
                for state, (samples, lost) in sorted(self.samples.get(key, {}).items()):
                    producers = self.producers(function, instruction, state)
                    method = producers[0].method if producers else Method.UNKNOWN
                    place, executed = self.place(function, instruction), self.executed.get(key)
                    yield Row(place, state, samples, lost, executed, method, producers)
        for state, (samples, lost) in sorted(self.samples.get(None, {}).items()):
            yield Row(None, state, samples, lost, None, Method.OUTSIDE, ())

    def producers(self, function: Function, instruction: Instruction, state: WarpState) -> tuple[Producer, ...]:
        """Return the producers of a wait with weights from executed counts."""
        if not state.is_stall:
            return (Producer(self.place(function, instruction), 1.0, Method.SELF),)
        if function.name not in self.finders:
            self.finders[function.name] = ProducerFinder(function)
        finder = self.finders[function.name]
        blamed = finder.find(instruction.index, state)
        parts: dict[int | None, list[tuple[Blamed, int]]] = defaultdict(list)
        for b in blamed:
            count = self.executed.get((function.name, finder.code[b.position].offset), 0)
            parts[b.part].append((b, count))
        out = []
        for members in parts.values():
            total = sum(count for _, count in members)
            # A candidate that never ran produced nothing; without counts all are alike.
            ran = [(b, count / total) for b, count in members if count] if total else []
            for b, weight in ran or [(b, 1.0 / len(members)) for b, _ in members]:
                out.append(self._producer(function, finder, b, weight / len(parts), state, len(parts) > 1))
        return tuple(out)

    def _producer(
        self, function: Function, finder: ProducerFinder, b: Blamed, weight: float, state: WarpState, joint: bool
    ) -> Producer:
        chain, note, late = b.chain, b.note, 0.0
        if state is WarpState.BARRIER and finder.code[b.position].base == "BAR":
            chain, note, late = self._late_path(function, finder, b.position)
        places = tuple(self.place(function, finder.code[c]) for c in chain)
        place = self.place(function, finder.code[b.position])
        return Producer(place, weight, b.method, b.loop_carried, places, note, joint, late)

    def _late_path(
        self, function: Function, finder: ProducerFinder, barrier: int
    ) -> tuple[tuple[int, ...], str, float]:
        """Return the instruction behind a barrier's wait, the words for it, and its line's share of the lateness."""
        if (function.name, barrier) not in self.late_paths:
            self.late_paths[function.name, barrier] = self._find_late_path(function, finder, barrier)
        return self.late_paths[function.name, barrier]

    def _uneven(self, function: Function, finder: ProducerFinder) -> frozenset[int]:
        if function.name not in self.uneven:
            self.uneven[function.name] = uneven_positions(finder.graph, finder.defuse)
        return self.uneven[function.name]

    def _find_late_path(
        self, function: Function, finder: ProducerFinder, barrier: int
    ) -> tuple[tuple[int, ...], str, float]:
        """Look among what runs before a barrier for what sets warps apart.

        What every warp executes alike makes none of them late, unless all there is executes so: then it is the
        costliest region that counts.
        """
        arrivals = self.executed.get((function.name, finder.code[barrier].offset), 0)
        costs: dict[int, int] = {}
        for position in finder.near.barrier_segment(barrier):
            key = (function.name, finder.code[position].offset)
            cost = sum(n for s, (n, _) in self.samples.get(key, {}).items() if s is not WarpState.BARRIER)
            if cost:
                costs[position] = cost
        if not costs:
            return (), "barrier", 0.0
        # A branch on the lane sends every warp the same way: as many pass as arrive.
        uneven = {
            p: n
            for p, n in costs.items()
            if p in self._uneven(function, finder)
            and self.executed.get((function.name, finder.code[p].offset), 0) != arrivals
        }
        considered = uneven if sum(uneven.values()) >= UNEVEN * sum(costs.values()) else costs
        by_region: dict[str, int] = defaultdict(int)
        by_line: dict[object, int] = defaultdict(int)
        line = {p: finder.code[p].frames or (p,) for p in considered}
        for p, n in considered.items():
            by_region[self.region_of[function.name, finder.code[p].offset]] += n
            by_line[line[p]] += n
        region = max(by_region, key=lambda r: by_region[r])
        inside = [p for p in considered if self.region_of[function.name, finder.code[p].offset] == region]
        latest = max(inside, key=lambda p: (by_line[line[p]], considered[p]))
        share = 100.0 * by_region[region] / sum(costs.values())
        note = f"late path: {region}, {share:.0f} % of the time before it"
        return (latest,), note, by_line[line[latest]] / sum(considered.values())


def attribute(account: Account, code: Code, regions: Regions) -> Hot:
    """Attribute the samples of a launch that was read with its per-PC instances."""
    run = _Attribution(account.launch, code, regions)
    rows = tuple(run.rows())
    problems = [*code.problems, *regions.problems]
    if account.samples is None:
        problems.append("no PC samples in the report: collect them with ncu --section SourceCounters")
    elif not account.samples.total:
        problems.append("the kernel ended before it was sampled: sample more often (ncu --warp-sampling-interval 0)")
    elif account.samples.total and not rows:
        problems.append("the samples carry no program counters")
    return Hot(
        account=account,
        code=code,
        rows=rows,
        causes=_causes(rows),
        regions=_regions(rows, run),
        coverage=_coverage(rows),
        executed=run.executed,
        threads=run.threads,
        region_of=run.region_of,
        region_source=regions.source,
        problems=tuple(problems),
    )


def _per_pc(launch: LaunchProfile, metric: str) -> Iterator[tuple[int, int]]:
    """Yield (absolute PC, count) of a metric's instances that are not zero."""
    found = launch.instances(metric)
    if found is not None and found.ids is not None:
        for pc, count in zip(found.ids, found.values, strict=True):
            if count and isinstance(pc, int) and isinstance(count, int | float):
                yield pc, int(count)


def _causes(rows: Iterable[Row]) -> tuple[Cause, ...]:
    """Sum rows by (producers, state, method); the costliest first: lost slots, then samples.

    Joint producers of a row are one cause: their wait cannot be split.
    """
    groups: dict[tuple[tuple[Key, ...], WarpState, Method], list[tuple[Row, tuple[Producer, ...], float]]]
    groups = defaultdict(list)
    for row in rows:
        joint = tuple(p for p in row.producers if p.joint)
        sets = [(p,) for p in row.producers if not p.joint] + ([joint] if joint else [])
        for members in sets or [()]:
            weight = sum(p.weight for p in members) if members else 1.0
            key = tuple(sorted((p.place.function, p.place.instruction.offset) for p in members))
            groups[key, row.state, members[0].method if members else row.method].append((row, members, weight))
    causes = []
    for (_, state, method), parts in groups.items():
        waiters: dict[Key, tuple[Place, float]] = {}
        for row, _, weight in parts:
            if row.place is not None:
                at = (row.place.function, row.place.instruction.offset)
                waiters[at] = (row.place, waiters.get(at, (row.place, 0.0))[1] + weight * row.samples)
        producers = max(parts, key=lambda part: part[0].samples)[1]
        first = producers[0] if producers else None
        causes.append(
            Cause(
                producers=tuple(p.place for p in producers),
                state=state,
                method=method,
                samples=sum(w * r.samples for r, _, w in parts),
                lost=sum(w * r.lost for r, _, w in parts),
                waiters=tuple(sorted(waiters.values(), key=lambda x: -x[1])),
                chain=() if first is None else first.chain,
                loop_carried=max((p.loop_carried for p in producers), default=0),
                note="" if first is None else first.note,
            )
        )
    return tuple(sorted(causes, key=lambda c: (-c.lost, -c.samples)))


def _regions(rows: Iterable[Row], run: _Attribution) -> tuple[RegionCost, ...]:
    executed: dict[str, int] = defaultdict(int)
    for key, count in run.executed.items():
        executed[run.region_of[key]] += count
    by_region: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_region[OUTSIDE if row.place is None else row.place.region].append(row)
    for name in executed:
        by_region.setdefault(name, [])
    costs = []
    for name, members in by_region.items():
        states: dict[WarpState, int] = defaultdict(int)
        waits_for: dict[str, float] = defaultdict(float)
        for row in members:
            states[row.state] += row.samples
            if row.state.is_stall:
                for p in row.producers:
                    waits_for[p.culprit.region] += p.weight * row.samples
        costs.append(
            RegionCost(
                name=name,
                samples=sum(r.samples for r in members),
                lost=sum(r.lost for r in members),
                executed=executed.get(name) if run.executed else None,
                states=dict(sorted(states.items(), key=lambda item: -item[1])),
                waits_for=dict(sorted(waits_for.items(), key=lambda item: -item[1])),
            )
        )
    return tuple(sorted(costs, key=lambda c: -c.samples))


def _coverage(rows: Iterable[Row]) -> tuple[Coverage, ...]:
    totals: dict[WarpState, dict[Method, int]] = defaultdict(lambda: defaultdict(int))
    unique: dict[WarpState, int] = defaultdict(int)
    joint: dict[WarpState, int] = defaultdict(int)
    for row in rows:
        totals[row.state][row.method] += row.samples
        if len(row.producers) == 1:
            unique[row.state] += row.samples
        elif row.producers and all(p.joint for p in row.producers):
            joint[row.state] += row.samples
    ranked = sorted(totals.items(), key=lambda item: -sum(item[1].values()))
    return tuple(Coverage(s, sum(m.values()), dict(m), unique[s], joint[s]) for s, m in ranked)
