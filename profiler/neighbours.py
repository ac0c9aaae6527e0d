"""States whose cause is what came just before: barriers, fences, wgmma, stores, branches, fixed latencies (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profiler.blame import Method
from profiler.cfg import FlowGraph
from profiler.opcodes import OpcodeClass, classify
from profiler.vocabulary import WarpState

# A barrier or DEPBAR samples on an instruction soon after it: +1 to +6 were seen from sm_75 to sm_120.
AFTER_BARRIER = 8
MAX_STEPS = 20_000
_BARRIERS = frozenset({"BAR", "UCGABAR_WAIT", "WARPSYNC", "BSYNC"})
_FENCES = frozenset({"MEMBAR", "ERRBAR", "CCTL", "FENCE"})
_BRANCHES = frozenset({"BRA", "BRX", "BRXU", "CALL", "RET", "JMP", "BSYNC", "BREAK", "EXIT", "WARPSYNC"})


@dataclass(frozen=True, slots=True)
class Blamed:
    """A producer by position in the function; fields as in blame.Producer.

    ``part`` numbers the ``parts`` of a joint wait, None when there is but one; producers of one part are alternatives.
    """

    position: int
    method: Method
    loop_carried: int = 0
    chain: tuple[int, ...] = ()
    note: str = ""
    part: int | None = None
    parts: int = 1


class Neighbours:
    """Looks backwards along the control flow of one function."""

    def __init__(self, graph: FlowGraph) -> None:
        """Take a function's flow graph."""
        self.graph = graph
        self.code = graph.function.instructions

    def find(self, position: int, state: WarpState) -> tuple[Blamed, ...] | None:
        """Return what a wait in one of these states waits for, None when the state is not one of them."""
        if state is WarpState.BARRIER:
            if self.code[position].opcode.startswith("WARPGROUP.DEPBAR"):
                # On an H200 the wait of wgmma.wait_group is sampled as barrier.
                return self._matrix_group(position)
            return self._after(position, _BARRIERS, "barrier")
        if state is WarpState.MEMBAR:
            return self._after(position, _FENCES, "fence")
        if state is WarpState.GMMA:
            return self._matrix_group(position)
        if state is WarpState.DRAIN:
            return self._drained(position)
        if state is WarpState.BRANCH_RESOLVING:
            return self._branch(position)
        if state is WarpState.WAIT:
            return self._fixed_latency(position)
        return None

    def preceding(self, position: int, bases: Iterable[str], distance: int) -> int | None:
        """Return the nearest instruction with one of the opcodes, at the position itself or up to a distance before."""
        wanted = frozenset(bases)
        if self.code[position].base in wanted:
            return position
        frontier, seen = [position], {position}
        for _ in range(distance):
            following: list[int] = []
            for at in frontier:
                for p in self.graph.predecessors[at]:
                    if p in seen:
                        continue
                    if self.code[p].base in wanted:
                        return p
                    seen.add(p)
                    following.append(p)
            frontier = following
        return None

    def _after(self, position: int, bases: frozenset[str], note: str) -> tuple[Blamed, ...]:
        found = self.preceding(position, bases, AFTER_BARRIER)
        if found is None:
            return (Blamed(position, Method.SELF, note=note),)
        return (Blamed(found, Method.SELF, note=note),)

    def barrier_segment(self, barrier: int) -> list[int]:
        """Return the instructions between a barrier and the barriers before it: the path on which warps are late."""
        found: list[int] = []
        seen = {barrier}
        work = [barrier]
        while work and len(seen) < MAX_STEPS:
            for p in self.graph.predecessors[work.pop()]:
                if p in seen or self.code[p].base == "BAR":
                    continue
                seen.add(p)
                found.append(p)
                work.append(p)
        return found

    def _matrix_group(self, position: int) -> tuple[Blamed, ...]:
        """gmma: the wgmma instructions before the WARPGROUP wait, or whose registers are touched."""
        found: list[int] = []
        seen: set[int] = set()
        work = [position]
        while work and len(seen) < MAX_STEPS and len(found) < 32:
            for p in self.graph.predecessors[work.pop()]:
                if p in seen:
                    continue
                seen.add(p)
                if self.code[p].base.endswith("GMMA"):
                    found.append(p)
                elif found and self.code[p].base == "WARPGROUP":
                    continue
                work.append(p)
        if not found:
            return (Blamed(position, Method.SELF),)
        return tuple(Blamed(p, Method.GROUP, note="wgmma in flight") for p in sorted(found))

    def _drained(self, position: int) -> tuple[Blamed, ...]:
        """drain: the stores on the way to the exit."""
        stores = [
            n for n, i in enumerate(self.code) if classify(i.opcode) in (OpcodeClass.GLOBAL_STORE, OpcodeClass.LOCAL)
            and n < position and not i.base.startswith("LD")
        ]  # fmt: skip
        if not stores:
            return (Blamed(position, Method.SELF, note="exit"),)
        return tuple(Blamed(p, Method.GROUP, note="stores in flight at exit") for p in stores)

    def _branch(self, position: int) -> tuple[Blamed, ...]:
        """branch_resolving: the branch that led here, or the instruction itself when it is one."""
        if self.code[position].base in (
            "BRA",
            "BRX",
            "BRXU",
            "CALL",
            "RET",
            "JMP",
            "BSYNC",
            "BREAK",
            "EXIT",
            "WARPSYNC",
        ):
            return (Blamed(position, Method.SELF),)
        jumps = [p for p in self.graph.predecessors[position] if self.code[p].base in _BRANCHES]
        back = self.graph.back_edges
        if not jumps:
            return (Blamed(position, Method.SELF),)
        return tuple(Blamed(p, Method.SELF, int((p, position) in back)) for p in jumps)

    def _fixed_latency(self, position: int) -> tuple[Blamed, ...]:
        """wait: the stall count of the instruction before, the fixed latency that the compiler scheduled."""
        before = self.graph.predecessors[position]
        if len(before) == 1 and before[0] == position - 1:
            control = self.code[before[0]].control
            note = f"stall count {control.stall}" if control is not None else ""
            return (Blamed(before[0], Method.SELF, note=note),)
        return (Blamed(position, Method.SELF),)
