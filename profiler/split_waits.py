"""A cubin -> a copy in which instructions that wait for several loads wait for them one after another.

A sample says that an instruction waits, not for which of its operands. In the copy the instructions just before it
wait too, each for one of the loads: a bit in their wait masks, which delays nothing that was not waiting anyhow. What
is sampled at the instruction itself is then what the load that is waited for last takes beyond the others: what
removing that load alone would win. So a load's price is the least that any order of waiting blames on it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from profiler import elf, nvdisasm, sass
from profiler.code import INSTRUCTION_BYTES, Function, Instruction
from profiler.errors import SpecimenError
from profiler.neighbours import Blamed
from profiler.producers import ProducerFinder
from profiler.vocabulary import WarpState

# Bit of the wait mask's scoreboard 0 in an instruction's upper word (profiler/code.py: bits 116-121 of 128).
_WAIT_MASK = 52
# Where no wait is put: what passes these is on its way elsewhere, or waits in a way of its own.
_UNFIT = frozenset(
    "BAR DEPBAR BRA BRX BRXU JMP JMX CALL RET EXIT BSSY BSYNC BREAK WARPSYNC MEMBAR ERRBAR FENCE CCTL NANOSLEEP YIELD "
    "WARPGROUP SYNCS UCGABAR_WAIT UCGABAR_ARV KILL LDGDEPBAR".split()
)


@dataclass(frozen=True, slots=True)
class Split:
    """``offset`` of the instruction that waits, ``earlier`` {offset: scoreboard} of those that now wait before it."""

    function: str
    offset: int
    earlier: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SplitCode:
    """The new ``image``; ``left`` counts the waits for several loads that could not be told apart."""

    image: bytes
    splits: tuple[Split, ...]
    left: int


def split_waits(image: bytes, first: str = "oldest") -> SplitCode:
    """Split the joint waits of every kernel of a cubin; the ``first`` to be waited for is the oldest or youngest load.

    One stays as it is where the loads share a scoreboard, or no instruction lies between the last of them and the one
    that waits. Raises MissingToolError without nvdisasm, and SpecimenError for a cubin that cannot be disassembled.
    """
    out = bytearray(image)
    splits: list[Split] = []
    left = 0
    for start, function in _functions(image):
        finder = ProducerFinder(function)
        for instruction in function.instructions:
            if instruction.control is None or not instruction.control.wait_mask:
                continue
            parts = _parts(finder.find(instruction.index, WarpState.LONG_SCOREBOARD))
            if len(parts) < 2:
                continue
            earlier = _places(finder, instruction, parts if first == "oldest" else parts[::-1])
            if earlier is None:
                left += 1
                continue
            for position, scoreboard in earlier:
                _wait_for(out, start + position * INSTRUCTION_BYTES, scoreboard)
            pairs = tuple((position * INSTRUCTION_BYTES, scoreboard) for position, scoreboard in earlier)
            splits.append(Split(function.name, instruction.offset, pairs))
    return SplitCode(bytes(out), tuple(splits), left)


def _functions(image: bytes) -> list[tuple[int, Function]]:
    """Return the functions of a cubin, each with the place of its code in the file."""
    parsed = elf.parse(image)
    sections = [s for s in parsed.code_sections if parsed.entry(s) is not None]
    symbols = [entry.index for s in sections if (entry := parsed.entry(s)) is not None]
    listing = nvdisasm.disassemble(image, symbols)
    codes = [parsed.content(s) for s in sections]
    parts = sass.parse(listing.text, codes, [None] * len(codes)) if listing.text else []
    if len(parts) != len(sections):
        raise SpecimenError(f"--split-waits: the cubin cannot be disassembled: {listing.problem or 'nvdisasm failed'}")
    return [
        (section.offset, Function(section.name.removeprefix(elf.TEXT), None, part.instructions, part.branch_targets))
        for section, part in zip(sections, parts, strict=True)
    ]


def _parts(blamed: tuple[Blamed, ...]) -> list[list[Blamed]]:
    """Return what is waited for together, the oldest first; each is one load or alternatives of one."""
    by_part: dict[int, list[Blamed]] = defaultdict(list)
    for b in blamed:
        if b.part is not None:
            by_part[b.part].append(b)
    return sorted(by_part.values(), key=lambda part: max((-b.loop_carried, b.position) for b in part))


def _places(finder: ProducerFinder, waiting: Instruction, parts: list[list[Blamed]]) -> list[tuple[int, int]] | None:
    """Return (position, scoreboard) of a wait for each part but the last; None where that cannot be."""
    scoreboards = []
    for part in parts:
        controls = [finder.code[b.position].control for b in part]
        found = {c.write_barrier for c in controls if c is not None}
        if len(found) != 1 or None in found:
            return None
        scoreboards.append(next(iter(found)))
    if len(set(scoreboards)) < len(parts):
        return None
    first = finder.graph.blocks[finder.graph.block_of[waiting.index]][0]
    issued = [b.position for part in parts for b in part if not b.loop_carried and b.position < waiting.index]
    # Before the last load is issued a wait would delay it.
    start = max([first, *(position + 1 for position in issued)])
    fit = [
        position
        for position in range(start, waiting.index)
        if finder.code[position].predicate is None and finder.code[position].base not in _UNFIT
    ]
    needed = len(parts) - 1
    if len(fit) < needed:
        return None
    return [(p, s) for p, s in zip(fit[-needed:], scoreboards, strict=False) if s is not None]


def _wait_for(code: bytearray, at: int, scoreboard: int) -> None:
    """Set a scoreboard's bit in the wait mask of the instruction at a place in the file."""
    word = int.from_bytes(code[at + 8 : at + 16], "little") | 1 << _WAIT_MASK + scoreboard
    code[at + 8 : at + 16] = word.to_bytes(8, "little")
