"""Where lanes of a warp are switched off, and the branch that does it: from per-instruction thread counts (pure)."""

from __future__ import annotations

from collections import defaultdict

from profiler.blame import Hot
from profiler.cfg import FlowGraph

WARP = 32
# Lanes that a step down must lose before it counts as a branch's doing: the last warp of a block may be part empty.
STEP = 1.1
_BRANCHES = frozenset({"BRA", "BRX", "JMP"})
Key = tuple[str, int]


def idle_lanes(hot: Hot) -> dict[tuple[str, int], dict[Key, float]]:
    """Return {(function, position of a branch): {(function, offset): idle part of the lanes, 0..1}}.

    Threads executed over warps executed gives the lanes of each instruction. The branch to blame is the nearest one
    behind an instruction's block that more lanes reach. Empty when threads were not counted per instruction.
    """
    found: dict[tuple[str, int], dict[Key, float]] = defaultdict(dict)
    for function in hot.code.functions.values() if hot.threads else ():
        graph = FlowGraph(function)
        code = function.instructions
        lanes: list[float | None] = []
        for i in code:
            warps = hot.executed.get((function.name, i.offset), 0)
            lanes.append(hot.threads.get((function.name, i.offset), 0) / warps if warps else None)
        for first, end in graph.blocks:
            mine = lanes[first]
            if mine is None or mine * STEP > WARP:
                continue
            branch = _branch_above(graph, lanes, first, mine)
            if branch is None:
                continue
            for position in range(first, end):
                here = lanes[position]
                if here is not None and here < WARP:
                    found[function.name, branch][function.name, code[position].offset] = 1.0 - here / WARP
    return dict(found)


def _branch_above(graph: FlowGraph, lanes: list[float | None], first: int, mine: float) -> int | None:
    """Return the branch on the way to a block at which its lanes part from others'; None when there is none."""
    code = graph.function.instructions
    seen = {first}
    work = [first]
    leaving: int | None = None
    while work:
        for p in graph.predecessors[work.pop(0)]:
            if p in seen:
                continue
            seen.add(p)
            above = lanes[p]
            if above is None:
                continue
            branches = code[p].base in _BRANCHES and (code[p].predicate is not None or len(code[p].operands) > 1)
            if above > STEP * mine:
                if branches:
                    return p
                continue
            if branches and leaving is None:
                # A loop that lanes leave one after another: its own branch, if nothing above parts them.
                leaving = p
            work.append(p)
    return leaving
