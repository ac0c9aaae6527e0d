"""Instructions that warps of one block may execute a different number of times: what can make one late (pure).

A branch is uneven when its condition comes from something that differs between warps: the thread's index, loaded data,
a clock. What it decides about (what runs between it and the place where its ways meet again) is uneven.
"""

from __future__ import annotations

from profiler.cfg import FlowGraph
from profiler.defuse import DefUse
from profiler.opcodes import OpcodeClass, classify

_SPECIAL = frozenset({"S2R", "S2UR", "CS2R"})
# Special registers that are the same in all warps of a block.
_SAME = ("SR_CTAID", "SR_NTID", "SR_NCTAID", "SR_SMEMSZ", "SR_GRIDID", "SR_SWINHI", "SRZ")
_LOADS = frozenset(
    {OpcodeClass.GLOBAL_LOAD, OpcodeClass.SHARED_LOAD, OpcodeClass.LOCAL, OpcodeClass.ATOMIC, OpcodeClass.TEXTURE}
)
_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX"})
# Definitions looked at for one condition; beyond, it is taken to be uneven.
_MOST = 2000


def uneven_positions(graph: FlowGraph, defuse: DefUse) -> frozenset[int]:
    """Return the positions in a function that uneven branches decide about."""
    code = graph.function.instructions
    meets = _post_dominators(graph)
    found: set[int] = set()
    for position, following in enumerate(graph.successors):
        if len(following) < 2 or code[position].base not in _JUMPS or not _differs(graph, defuse, position):
            continue
        end = meets[graph.block_of[position]]
        seen: set[int] = set()
        work = [graph.block_of[s] for s in following]
        while work:
            block = work.pop()
            if block == end or block in seen:
                continue
            seen.add(block)
            first, last = graph.blocks[block]
            found.update(range(first, last))
            work += [graph.block_of[s] for s in graph.successors[last - 1]]
    return frozenset(found)


def _differs(graph: FlowGraph, defuse: DefUse, branch: int) -> bool:
    """Say whether a branch's condition may differ between the warps of a block."""
    code = graph.function.instructions
    seen: set[int] = set()
    work = [(branch, register) for register in defuse.accesses[branch].reads]
    while work:
        if len(seen) > _MOST:
            return True
        at, register = work.pop()
        for definition in defuse.reaching(at, register):
            if definition in seen:
                continue
            seen.add(definition)
            instruction = code[definition]
            if instruction.base in _SPECIAL:
                if not any(operand.startswith(_SAME) for operand in instruction.operands):
                    return True
            elif classify(instruction.opcode) in _LOADS:
                return True
            else:
                work += [(definition, r) for r in defuse.accesses[definition].reads]
    return False


def _post_dominators(graph: FlowGraph) -> list[int]:
    """Return for each basic block the first block that every way from it to the end passes; the number of blocks: none.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on the reversed graph.
    """
    blocks = graph.blocks
    exit_block = len(blocks)
    after = [sorted({graph.block_of[s] for s in graph.successors[last - 1]}) or [exit_block] for _, last in blocks]
    before: list[list[int]] = [[] for _ in range(exit_block + 1)]
    for block, following in enumerate(after):
        for s in following:
            before[s].append(block)
    order: list[int] = []
    seen = {exit_block}
    stack = [(exit_block, 0)]
    while stack:
        node, n = stack.pop()
        if n < len(before[node]):
            stack.append((node, n + 1))
            if before[node][n] not in seen:
                seen.add(before[node][n])
                stack.append((before[node][n], 0))
        else:
            order.append(node)
    rank = {node: n for n, node in enumerate(order)}
    immediate = {exit_block: exit_block}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = [s for s in after[node] if s in immediate]
            if not known:
                continue
            new = known[0]
            for other in known[1:]:
                while new != other:
                    while rank[new] < rank[other]:
                        new = immediate[new]
                    while rank[other] < rank[new]:
                        other = immediate[other]
            if immediate.get(node) != new:
                immediate[node] = new
                changed = True
    # A block from which nothing ends (an endless loop) meets nowhere.
    return [immediate.get(block, exit_block) for block in range(exit_block)]
