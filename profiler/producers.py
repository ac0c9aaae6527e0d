"""Waiting instruction + warp state -> the instructions that it waits for (pure).

From Volta on the compiler writes down who waits for whom: a variable-latency instruction sets one of six scoreboards,
an instruction that needs its result has that scoreboard in its wait mask. So the candidates are exact: walk the
control flow backwards from the waiting instruction to those that set the scoreboard, stopping where it was already
waited for. Register def-use then says which of several candidates' results is consumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from profiler.blame import Method
from profiler.cfg import FlowGraph
from profiler.code import Function
from profiler.defuse import PREDICATE, DefUse
from profiler.neighbours import MAX_STEPS, Blamed, Neighbours
from profiler.opcodes import OpcodeClass, classify
from profiler.vocabulary import WarpState

CHAIN_DEPTH = 3

_LONG = frozenset(
    {OpcodeClass.GLOBAL_LOAD, OpcodeClass.GLOBAL_STORE, OpcodeClass.LOCAL, OpcodeClass.ATOMIC, OpcodeClass.TEXTURE}
)
_LONG_BASES = frozenset({"LDGSTS", "LDGDEPBAR", "UBLKCP", "UTMALDG", "CCTL", "LD", "ST", "SYNCS", "ARRIVES", "LDTM"})
# What completes an mbarrier, likeliest first: bulk copies, cp.async that arrive on it, other arrivals.
_MBARRIER_COPIES = (frozenset({"UBLKCP", "UTMALDG"}), frozenset({"LDGSTS"}), frozenset({"ARRIVES"}))
_SHARED_ATOMICS = frozenset({"ATOMS"})
_VARIABLE_LATENCY = frozenset(
    {OpcodeClass.SHARED_LOAD, OpcodeClass.SPECIAL, OpcodeClass.CONVERSION, OpcodeClass.CONSTANT_LOAD, OpcodeClass.FP64}
)
_VARIABLE_LATENCY_BASES = frozenset({"SHFL", "S2R", "S2UR", "R2UR", "REDUX", "POPC", "FLO", "BREV"})
_SCOREBOARD_STATES = frozenset({WarpState.LONG_SCOREBOARD, WarpState.SHORT_SCOREBOARD})
# What fills the queue that a throttled instruction waits for.
_QUEUES: dict[WarpState, frozenset[OpcodeClass]] = {
    WarpState.LG_THROTTLE: frozenset(
        {OpcodeClass.GLOBAL_LOAD, OpcodeClass.GLOBAL_STORE, OpcodeClass.LOCAL, OpcodeClass.ASYNC_COPY}
    ),
    WarpState.MIO_THROTTLE: frozenset(
        {
            OpcodeClass.SHARED_LOAD,
            OpcodeClass.SHARED_STORE,
            OpcodeClass.SPECIAL,
            OpcodeClass.CONVERSION,
            OpcodeClass.ATOMIC,
        }
    ),
    WarpState.TEX_THROTTLE: frozenset({OpcodeClass.TEXTURE}),
}


class ProducerFinder:
    """Finds producers in one function; results depend on (position, state) alone and are computed once for each."""

    def __init__(self, function: Function) -> None:
        """Take a function; graph and def-use are computed when first needed."""
        self.function = function
        self.code = function.instructions
        self.graph = FlowGraph(function)
        self.defuse = DefUse(self.graph)
        self.near = Neighbours(self.graph)
        self._scoreboards: dict[tuple[int, int], dict[int, int]] = {}
        self._behind: dict[int, int | None] = {}
        self._queue_notes: dict[WarpState, str] = {}
        self._by_bases: dict[frozenset[str], list[int]] = {}

    @cached_property
    def _usable_control(self) -> bool:
        return self.function.has_control

    def find(self, position: int, state: WarpState) -> tuple[Blamed, ...]:
        """Return what the instruction at a position waits for in a state; empty when nothing can be said."""
        if state in _SCOREBOARD_STATES:
            return self._scoreboard(position, state)
        near = self.near.find(position, state)
        if near is not None:
            return near
        note = {
            WarpState.NO_INSTRUCTION: f"{self.function.size:,} bytes of code",
            WarpState.MATH_PIPE_THROTTLE: f"pipe of {classify(self.code[position].opcode).value} instructions",
            WarpState.IMC_MISS: "constant operand",
        }.get(state, "")
        if state in _QUEUES:
            note = self._queue_note(state)
        return (Blamed(position, Method.SELF, note=note),)

    # Scoreboards

    def _scoreboard(self, position: int, state: WarpState) -> tuple[Blamed, ...]:
        if not self._usable_control:
            return self._by_register(position, state)
        group = self._group_wait(position)
        if group:
            return group
        candidates: dict[int, int] = {}
        control = self.code[position].control
        for scoreboard in control.waits if control is not None else ():
            for setter, edges in self.setters(position, scoreboard).items():
                candidates[setter] = min(edges, candidates.get(setter, edges))
        kept = {p: e for p, e in candidates.items() if self._produces(p, state)} or candidates
        if not kept:
            return self._by_register(position, state)
        groups = self._consumed(position, kept)
        if not groups:
            return self._distinct(b for p, edges in kept.items() for b in self._finish(p, Method.SCOREBOARD, edges))
        return self._blame_groups(groups, Method.SCOREBOARD_REGISTER)

    def _blame_groups(self, groups: list[dict[int, int]], method: Method) -> tuple[Blamed, ...]:
        """Turn {definition: edges} by register into producers: several registers are waited for together (joint).

        A register with several definitions has alternatives, one for each path. Groups that share a member are one.
        """
        merged: list[dict[int, int]] = []
        for group in groups:
            overlapping = [m for m in merged if m.keys() & group.keys()]
            for m in overlapping:
                merged.remove(m)
                group = {**m, **{p: min(e, m.get(p, e)) for p, e in group.items()}}
            merged.append(group)
        blamed = []
        for number, group in enumerate(merged):
            for p, edges in sorted(group.items()):
                part = number if len(merged) > 1 else None
                blamed += [replace(b, part=part, parts=len(merged)) for b in self._finish(p, method, edges)]
        return self._distinct(blamed)

    def _distinct(self, blamed: Iterable[Blamed]) -> tuple[Blamed, ...]:
        """Return one entry for each position, in program order: the one with the fewest back edges."""
        best: dict[int, Blamed] = {}
        for b in blamed:
            if b.position not in best or b.loop_carried < best[b.position].loop_carried:
                best[b.position] = b
        return tuple(best[p] for p in sorted(best))

    def setters(self, position: int, scoreboard: int) -> dict[int, int]:
        """Return {position: loop back edges} of the instructions that may have set a scoreboard waited for here.

        A scoreboard counts: earlier setters that were not waited for are waited for here too, so the walk goes on
        past a setter and stops only at an instruction that waited for the same scoreboard.
        """
        key = (position, scoreboard)
        if key not in self._scoreboards:
            self._scoreboards[key] = self._walk_setters(position, scoreboard)
        return self._scoreboards[key]

    @cached_property
    def _events(self) -> tuple[list[int], ...]:
        """For each scoreboard, the positions that set it or, unguarded, wait for it, ascending."""
        events: tuple[list[int], ...] = tuple([] for _ in range(6))
        for position, instruction in enumerate(self.code):
            control = instruction.control
            if control is not None:
                waits = control.waits if instruction.predicate is None else ()
                for scoreboard in {*control.sets, *waits}:
                    events[scoreboard].append(position)
        return events

    def _walk_setters(self, position: int, scoreboard: int) -> dict[int, int]:
        found: dict[int, int] = {}
        events = self._events[scoreboard]
        seen: set[int] = set()
        work: deque[tuple[int, int, int]] = deque([(position, self._block_start(position), 0)])
        steps = MAX_STEPS
        while work and steps:
            steps -= 1
            end, first, crossed = work.popleft()
            stopped = False
            for n in range(bisect_left(events, end) - 1, -1, -1):
                p = events[n]
                if p < first:
                    break
                control = self.code[p].control
                assert control is not None
                if scoreboard in control.sets:
                    found[p] = min(crossed, found.get(p, crossed))
                if scoreboard in control.waits and self.code[p].predicate is None:
                    stopped = True
                    break
            if stopped:
                continue
            for p in self.graph.predecessors[first]:
                if p not in seen:
                    seen.add(p)
                    carried = (p, first) in self.graph.back_edges
                    # Fewest back edges first, so that a producer of the same iteration is not called loop-carried.
                    (work.append if carried else work.appendleft)((p + 1, self._block_start(p), crossed + carried))
        return found

    def _block_start(self, position: int) -> int:
        return self.graph.blocks[self.graph.block_of[position]][0]

    def _produces(self, position: int, state: WarpState) -> bool:
        """True when the unit behind an instruction is the one that the state names: L1TEX for long_scoreboard."""
        instruction = self.code[position]
        cls = classify(instruction.opcode)
        is_long = (cls in _LONG or instruction.base in _LONG_BASES) and instruction.base not in _SHARED_ATOMICS
        if instruction.base == "SYNCS":
            return True
        return is_long if state is WarpState.LONG_SCOREBOARD else not is_long

    def _consumed(self, position: int, candidates: dict[int, int]) -> list[dict[int, int]]:
        """Return, register by register, the candidates whose result the instruction reads or overwrites."""
        access = self.defuse.accesses[position]
        needed: list[dict[int, int]] = []
        # Registers that no candidate writes were defined long ago: walking to their definitions would tell nothing.
        written = {r for p in candidates for r in self.defuse.accesses[p].writes}
        for register in sorted((written & access.writes) | ((written | self._written_by_uncovered) & access.reads)):
            # A load that sets no scoreboard is covered by a later one's of the same unit.
            group = {
                definition: edges
                for definition, edges in self.defuse.reaching(position, register).items()
                if definition in candidates or (register in access.reads and self._uncovered(definition))
            }
            if group:
                needed.append(group)
        if not needed and access.writes:
            # Write after read: a store or load whose operands this instruction is about to overwrite.
            for p, edges in candidates.items():
                control = self.code[p].control
                reads_late = control is not None and control.read_barrier is not None
                if reads_late and self.defuse.accesses[p].reads & access.writes:
                    needed.append({p: edges})
        return needed

    @cached_property
    def _written_by_uncovered(self) -> frozenset[int]:
        """Registers that a load without scoreboard writes anywhere."""
        accesses = self.defuse.accesses
        return frozenset(r for p in range(len(self.code)) if self._uncovered(p) for r in accesses[p].writes)

    def _uncovered(self, position: int) -> bool:
        control = self.code[position].control
        cls = classify(self.code[position].opcode)
        is_load = cls in (OpcodeClass.GLOBAL_LOAD, OpcodeClass.SHARED_LOAD, OpcodeClass.LOCAL)
        return is_load and control is not None and control.write_barrier is None

    def _by_register(self, position: int, state: WarpState) -> tuple[Blamed, ...]:
        """Def-use alone: the definitions of what is read here that come from a variable-latency unit."""
        access = self.defuse.accesses[position]
        groups = []
        for register in sorted(access.reads | access.writes):
            wanted = {
                w for w in self.defuse.writers(register) if self._variable_latency(w) and self._produces(w, state)
            }
            if not wanted:
                continue
            found = self.defuse.reaching(position, register)
            group = {definition: edges for definition, edges in found.items() if definition in wanted}
            if group:
                groups.append(group)
        return self._blame_groups(groups, Method.REGISTER)

    def _variable_latency(self, position: int) -> bool:
        instruction = self.code[position]
        cls = classify(instruction.opcode)
        return cls in _LONG or cls in _VARIABLE_LATENCY or instruction.base in _VARIABLE_LATENCY_BASES

    # Groups

    def _group_wait(self, position: int) -> tuple[Blamed, ...]:
        """A wait at or just after ``DEPBAR.LE SBn, k``: the cp.async groups older than the k youngest."""
        depbar = self.near.preceding(position, frozenset({"DEPBAR"}), 2)
        own = self.code[position].control
        if depbar is None or (own is not None and own.wait_mask and self.code[position].base != "DEPBAR"):
            return ()
        match = next((o for o in self.code[depbar].operands if o.startswith("SB") and o[2:].isdigit()), None)
        if match is None:
            return ()
        setters = self.setters(depbar, int(match[2:]))
        keep = self._outstanding(depbar)
        # Youngest first: later in the same iteration, then later in the previous one.
        groups = sorted(setters, key=lambda p: (setters[p], -p))
        waited, earlier = groups[keep:], 0
        if not waited and groups:
            # One commit a loop pass: the group waited for is the same instruction's, some passes ago.
            waited, earlier = groups, keep // len(groups)
        return self._distinct(b for c in waited for b in self._finish(c, Method.GROUP, setters[c] + earlier))

    def _outstanding(self, depbar: int) -> int:
        """The k of ``DEPBAR.LE SBn, k``: how many of the youngest may still be in flight."""
        for operand in self.code[depbar].operands[1:]:
            try:
                return int(operand, 16)
            except ValueError:
                continue
        return 0

    def _copies_before(self, commit: int) -> list[int]:
        """Return the LDGSTS between a commit (LDGDEPBAR) and the commit before it."""
        found: list[int] = []
        seen: set[int] = set()
        work = [commit]
        while work and len(seen) < MAX_STEPS:
            for p in self.graph.predecessors[work.pop()]:
                if p in seen or self.code[p].base == "LDGDEPBAR":
                    continue
                seen.add(p)
                if self.code[p].base == "LDGSTS":
                    found.append(p)
                work.append(p)
        return sorted(found)

    def _finish(self, position: int, method: Method, edges: int) -> list[Blamed]:
        """Look behind a producer: the copies that an mbarrier or a cp.async group stands for, or an address chain."""
        base = self.code[position].base
        copies: list[int] = []
        if base == "SYNCS":
            copies = next((found for bases in _MBARRIER_COPIES if (found := self._all(bases))), [])
        elif base == "LDGDEPBAR":
            copies = self._copies_before(position)
        if copies:
            note = "mbarrier" if base == "SYNCS" else "cp.async group"
            return [Blamed(copy, Method.GROUP, edges, (position,), note) for copy in copies]
        return [Blamed(position, method, edges, self._address_chain(position))]

    def _all(self, bases: frozenset[str]) -> list[int]:
        if bases not in self._by_bases:
            self._by_bases[bases] = [n for n, i in enumerate(self.code) if i.base in bases]
        return self._by_bases[bases]

    def _address_chain(self, position: int) -> tuple[int, ...]:
        """Return the loads that a load's address comes from, nearest first, through arithmetic."""
        chain: list[int] = []
        current = position
        for _ in range(CHAIN_DEPTH):
            source = self._load_behind(current)
            if source is None or source in chain or source == position:
                break
            chain.append(source)
            current = source
        return tuple(chain)

    def _load_behind(self, position: int) -> int | None:
        if position not in self._behind:
            self._behind[position] = self._search_load(position)
        return self._behind[position]

    def _search_load(self, position: int) -> int | None:
        seen: set[int] = set()
        work = [(position, r) for r in self.defuse.accesses[position].addresses if r < PREDICATE]
        steps = 64
        while work and steps:
            steps -= 1
            at, register = work.pop(0)
            for definition in self.defuse.reaching(at, register, limit=100):
                if definition in seen:
                    continue
                seen.add(definition)
                cls = classify(self.code[definition].opcode)
                if cls in (OpcodeClass.GLOBAL_LOAD, OpcodeClass.SHARED_LOAD, OpcodeClass.LOCAL, OpcodeClass.ATOMIC):
                    return definition
                work += [(definition, r) for r in self.defuse.accesses[definition].reads if r < PREDICATE]
        return None

    def _queue_note(self, state: WarpState) -> str:
        if state not in self._queue_notes:
            filling = sum(1 for i in self.code if classify(i.opcode) in _QUEUES[state])
            self._queue_notes[state] = f"queue filled by {filling} instructions of its kind"
        return self._queue_notes[state]
