"""Control flow of a function: successors, predecessors, basic blocks, loops (pure)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from profiler.code import Function, Instruction

# Instructions after which control does not fall through when they are executed by all threads.
_ENDS = frozenset({"EXIT", "RET", "BRA", "JMP", "BRX", "BRXU", "JMX", "JMXU", "KILL", "BPT", "RTT"})
# BSSY, BREAK and WARPSYNC name a place without going there.
_JUMPS = frozenset({"BRA", "JMP", "CALL"})
_INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})


@dataclass(frozen=True)
class FlowGraph:
    """Instruction-level control flow graph of one function; indices are positions in ``function.instructions``."""

    function: Function

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the instructions that may follow it.

        A call may go to its target or, for callees elsewhere, to the next instruction; a return goes to where its
        function, taken to start at the nearest call target before it, was called from.
        """
        code = self.function.instructions
        index_of = {i.offset: n for n, i in enumerate(code)}
        indirect = tuple(index_of[t] for t in self.function.branch_targets if t in index_of)
        calls = [
            (n, index_of[i.target])
            for n, i in enumerate(code)
            if i.base == "CALL" and i.target is not None and i.target in index_of
        ]
        entries = sorted({target for _, target in calls})
        returns: dict[int, list[int]] = {}
        for n, target in calls:
            if n + 1 < len(code):
                returns.setdefault(target, []).append(n + 1)
        out: list[tuple[int, ...]] = []
        for n, instruction in enumerate(code):
            following: list[int] = []
            if _falls_through(instruction) and n + 1 < len(code):
                following.append(n + 1)
            if instruction.base in _INDIRECT:
                own = [index_of[t] for t in instruction.targets if t in index_of]
                following += [t for t in own or indirect if t not in following]
            elif instruction.target is not None and instruction.base in _JUMPS:
                goes_to = index_of.get(instruction.target)
                if goes_to is not None and goes_to not in following:
                    following.append(goes_to)
            elif instruction.base == "RET":
                following += returns.get(_callee(n, entries), [])
            out.append(tuple(following))
        return tuple(out)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the instructions that control may come from, in falling program order."""
        into: list[list[int]] = [[] for _ in self.function.instructions]
        for n, following in enumerate(self.successors):
            for s in following:
                into[s].append(n)
        return tuple(tuple(sorted(x, reverse=True)) for x in into)

    @cached_property
    def back_edges(self) -> frozenset[tuple[int, int]]:
        """Edges to an instruction that is still open in a depth-first walk from the entry: the loops' closing edges."""
        state = bytearray(len(self.successors))
        found: set[tuple[int, int]] = set()
        for root in range(len(state)):
            if state[root]:
                continue
            state[root] = 1
            stack = [(root, 0)]
            while stack:
                node, position = stack.pop()
                if position < len(self.successors[node]):
                    stack.append((node, position + 1))
                    following = self.successors[node][position]
                    if state[following] == 0:
                        state[following] = 1
                        stack.append((following, 0))
                    elif state[following] == 1:
                        found.add((node, following))
                else:
                    state[node] = 2
        return frozenset(found)

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Basic blocks as (first, last + 1) in program order."""
        n = len(self.successors)
        leaders = {0} if n else set()
        for i, following in enumerate(self.successors):
            if following != (i + 1,):
                leaders.update(following)
                if i + 1 < n:
                    leaders.add(i + 1)
        starts = sorted(leaders)
        return tuple(zip(starts, [*starts[1:], n], strict=True))

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """For each instruction, the index of its basic block."""
        out = [0] * len(self.successors)
        for b, (first, end) in enumerate(self.blocks):
            for i in range(first, end):
                out[i] = b
        return tuple(out)


def _falls_through(instruction: Instruction) -> bool:
    if instruction.base not in _ENDS:
        return True
    # A guarded jump is not taken by every thread; PT and UPT guards are always true.
    return instruction.predicate not in (None, "PT", "UPT") or _conditional(instruction)


def _conditional(instruction: Instruction) -> bool:
    """``BRA.DIV UR4, target`` and ``BRA !P0, target`` carry their condition as an operand."""
    if instruction.base not in ("BRA", "EXIT", "JMP"):
        return False
    if instruction.base == "EXIT":
        return any(o.lstrip("!").startswith(("P", "UP")) and o not in ("PT", "UPT") for o in instruction.operands)
    return len(instruction.operands) > 1 and not instruction.operands[0].startswith(("PT", "UPT"))


def _callee(position: int, entries: list[int]) -> int:
    """Return the last call target at or before a position, the function it lies in; -1 before the first."""
    at = bisect_right(entries, position)
    return entries[at - 1] if at else -1
