"""Walks compiled code forward from each result: does every path wait for the scoreboard that guards it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from profiler.cfg import FlowGraph
from profiler.code import Control, Function, Instruction
from profiler.defuse import access_of


@dataclass(frozen=True)
class Program:
    """A compiled function with the registers that each instruction reads and writes."""

    sm: int
    function: Function

    @property
    def code(self) -> tuple[Instruction, ...]:
        return self.function.instructions

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        return FlowGraph(self.function).successors

    @cached_property
    def writes(self) -> tuple[frozenset[int], ...]:
        return tuple(self._tiles(i) if i.base == "LDSM" else access_of(i).writes for i in self.code)

    @cached_property
    def reads(self) -> tuple[frozenset[int], ...]:
        return tuple(access_of(i).reads for i in self.code)

    @staticmethod
    def _tiles(instruction: Instruction) -> frozenset[int]:
        """LDSM.16.M88.4 writes four registers: the last modifier counts the tiles."""
        first, count = int(instruction.operands[0].removeprefix("R")), instruction.opcode.rpartition(".")[2]
        return frozenset(range(first, first + (int(count) if count in "124" else 1)))

    def control(self, position: int) -> Control:
        found = self.code[position].control
        assert found is not None
        return found


def used_too_early(program: Program) -> Iterator[tuple[int, int]]:
    """Yield (producer, consumer) where a path reaches a use of what a scoreboard guards without waiting for it."""
    for position, instruction in enumerate(program.code):
        control = program.control(position)
        if control.write_barrier is not None:
            # Whoever reads or overwrites the result must have waited.
            guarded = program.writes[position]
            mask = 1 << control.write_barrier
            yield from walk(program, position, mask, lambda n, g=guarded: g & (program.reads[n] | program.writes[n]))
        if control.read_barrier is not None:
            # Whoever overwrites an operand must have waited until it was read, or until the result was there, which is
            # later. The guard predicate is read at issue.
            operands = access_of(replace(instruction, predicate=None)).reads
            mask = 1 << control.read_barrier
            if control.write_barrier is not None:
                mask |= 1 << control.write_barrier
            yield from walk(program, position, mask, lambda n, g=operands: g & program.writes[n])


def walk(
    program: Program,
    start: int,
    mask: int,
    clashes: Callable[[int], frozenset[int]],
    pipeline: frozenset[str] = frozenset(),
) -> Iterator[tuple[int, int]]:
    """Walk every path forward until a wait for a scoreboard of ``mask``; later results of ``pipeline`` add theirs."""
    seen: set[tuple[int, int]] = set()
    work = [(following, mask) for following in program.successors[start]]
    while work:
        position, waited = work.pop()
        if (position, waited) in seen:
            continue
        seen.add((position, waited))
        control, instruction = program.control(position), program.code[position]
        # DEPBAR waits for a scoreboard that it names as an operand.
        named = sum(1 << int(o[2:]) for o in instruction.operands[:1] if instruction.base == "DEPBAR" and o[:2] == "SB")
        if (control.wait_mask | named) & waited:
            continue
        if clashes(position):
            yield start, position
            continue
        if instruction.base in pipeline and control.write_barrier is not None:
            waited |= 1 << control.write_barrier
        work += [(following, waited) for following in program.successors[position]]


def described(program: Program, pair: tuple[int, int]) -> str:
    first, second = (program.code[n] for n in pair)
    places = f"{first.text} at {first.offset:#x}, {second.text} at {second.offset:#x}"
    return f"sm_{program.sm} {program.function.name}: {places}"
