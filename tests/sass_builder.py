"""A few lines of text -> a Function, for tests that know the answer by construction.

One instruction a line: ``label:``, then ``[@P0] OPCODE operands | controls``. Controls are words: ``w0`` sets write
scoreboard 0, ``r1`` read scoreboard 1, ``?0`` waits for 0 (``?01`` for both), ``s4`` stall count 4. A branch names its
label as ``->label``.
"""

from __future__ import annotations

import random
import re

from profiler.code import Control, Function, Instruction


def function(text: str, name: str = "k", address: int | None = 0) -> Function:
    """Assemble a function."""
    rows: list[tuple[str | None, str, list[str], Control, str | None]] = []
    labels: dict[str, int] = {}
    for line in (x.strip() for x in text.strip().splitlines()):
        if not line or line.startswith("#"):
            continue
        if re.fullmatch(r"\w+:", line):
            labels[line[:-1]] = len(rows)
            continue
        body, _, words = line.partition(" | ")
        target = None
        if found := re.search(r"->(\w+)", body):
            target = found[1]
            body = body.replace(found[0], "").rstrip(", ")
        parts = body.split(None, 1)
        predicate = None
        if parts[0].startswith("@"):
            predicate = parts[0][1:]
            parts = parts[1].split(None, 1)
        operands = [o.strip() for o in parts[1].split(",")] if len(parts) > 1 else []
        rows.append((predicate, parts[0], operands, control(words), target))
    instructions = tuple(
        Instruction(i, 16 * i, p, op, tuple(o), c, (), 16 * labels[t] if t else None)
        for i, (p, op, o, c, t) in enumerate(rows)
    )
    return Function(name, address, instructions)


def control(words: str) -> Control:
    """Read control words; by default stall 1 and no scoreboards."""
    stall, write, read, mask = 1, None, None, 0
    for word in words.split():
        if word[0] == "w":
            write = int(word[1])
        elif word[0] == "r":
            read = int(word[1])
        elif word[0] == "s":
            stall = int(word[1:])
        elif word[0] == "?":
            mask = sum(1 << int(d) for d in word[1:])
        else:
            raise ValueError(word)
    return Control(stall, False, write, read, mask, 0)


def shuffled_blocks(f: Function, blocks: list[list[int]], seed: int) -> tuple[Function, dict[int, int]]:
    """Lay the basic blocks out in another order, with jumps where control fell through; return {old: new index}.

    The entry block stays first. Inserted jumps carry no scoreboards, so the flow of control is the same.
    """
    order = blocks[1:]
    random.Random(seed).shuffle(order)
    order = [blocks[0], *order]
    layout: list[tuple[int | None, int | None]] = []  # (old index, or None for a jump; old target of the jump)
    for block in order:
        layout += [(i, None) for i in block]
        last = f.instructions[block[-1]]
        ends = last.base in ("EXIT", "BRA") and last.predicate is None
        if not ends and block[-1] + 1 < len(f.instructions):
            layout.append((None, block[-1] + 1))
    new_of = {old: new for new, (old, _) in enumerate(layout) if old is not None}
    instructions = []
    for new, (old, jump) in enumerate(layout):
        if old is None:
            assert jump is not None
            instructions.append(Instruction(new, 16 * new, None, "BRA", (), control(""), (), 16 * new_of[jump]))
            continue
        i = f.instructions[old]
        target = None if i.target is None else 16 * new_of[i.target // 16]
        instructions.append(Instruction(new, 16 * new, i.predicate, i.opcode, i.operands, i.control, i.frames, target))
    return Function(f.name, f.address, tuple(instructions)), new_of
