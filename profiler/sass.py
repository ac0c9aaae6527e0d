"""nvdisasm's text + the raw code -> instructions, with branch targets, source frames and scheduling control (pure)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from profiler.code import INSTRUCTION_BYTES, Control, Frame, Instruction

# Bits 41-61: masked, few different words remain, and decoding them is a look-up.
_CONTROL_BITS = ((1 << 21) - 1) << 41
_NONE = 7  # a scoreboard field of all ones names none
# What every instruction carries that the compiler did not schedule (-G): no stall, no scoreboard, no wait.
_UNSCHEDULED = Control(stall=0, yield_hint=True, write_barrier=None, read_barrier=None, wait_mask=0, reuse=0)


@dataclass(frozen=True, slots=True)
class Listing:
    """One code section of a listing, ``section`` by name. ``branch_targets`` are those of all its indirect branches.

    ``functions`` are the (offset, name) of the functions in it, by offset. nvdisasm numbers what has the same name:
    ``max__2``.
    """

    section: str
    instructions: tuple[Instruction, ...]
    functions: tuple[tuple[int, str], ...]
    branch_targets: tuple[int, ...] = ()


def decode_control(word_hi: int) -> Control:
    """Decode the scheduling control of a 128-bit instruction from its upper 64 bits (Volta to Blackwell).

    Bits 41-44 stall, 45 yield (0 asks for it), 46-48 and 49-51 scoreboards set on write and on read, 52-57 wait mask,
    58-61 reuse: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), section 2.1.
    """
    return _decode(word_hi & _CONTROL_BITS)


@cache
def _decode(word_hi: int) -> Control:
    write, read = word_hi >> 46 & 7, word_hi >> 49 & 7
    return Control(
        stall=word_hi >> 41 & 15,
        yield_hint=not word_hi >> 45 & 1,
        write_barrier=None if write == _NONE else write,
        read_barrier=None if read == _NONE else read,
        wait_mask=word_hi >> 52 & 63,
        reuse=word_hi >> 58 & 15,
    )


def controls(code: bytes) -> tuple[Control | None, ...]:
    """Return the control of each instruction of a function; all None for a debug build (-G), which carries none."""
    found = [decode_control(hi) for _, hi in struct.iter_unpack("<QQ", code[: len(code) & ~15])]
    if all(c == _UNSCHEDULED for c in found):
        return (None,) * len(found)
    return tuple(found)


_SECTION = re.compile(r"\s*\.section\s+([^\s,]+),")
_LABEL = re.compile(r"([^\s/][^\s:]*):\s*$")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([^\s;]+)\s*([^;]*);")
_POSITION = re.compile(r'"([^"]*)", line (\d+)')
_FUNCTION = re.compile(r'Function\s+"?([^\s",]+)')
_TARGET = re.compile(r"`\(([^)]*)\)")
_TABLE = re.compile(r"\(\*\"BRANCH_TARGETS ([^\"]*)\"\*\)")
_NESTED_COMMA = re.compile(r"[({]|\[[^\]]*,")
_REGISTER = re.compile(r"U?R\d+")


def parse(
    text: str, codes: Sequence[bytes] = (), frames: Sequence[Callable[[int], tuple[Frame, ...]] | None] = ()
) -> tuple[Listing, ...]:
    """Parse the code sections of ``nvdisasm -c -gi`` output, in their order.

    ``codes`` are the raw bytes of the same sections in the same order, for the control words; without them, or where a
    section's length does not match its listing, control is None. ``frames`` give the inline stack at an offset of each
    section; it replaces the printed one, if both agree on the innermost line.
    """
    chunks: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        if found := _SECTION.match(line):
            inside = found[1].startswith(".text.")
            if inside:
                chunks.append((found[1], []))
        elif inside:
            chunks[-1][1].append(line)
    found_codes = [*codes, *[b""] * (len(chunks) - len(codes))]
    found_frames = [*frames, *[None] * (len(chunks) - len(frames))]
    return tuple(
        _section(name, lines, code, at)
        for (name, lines), code, at in zip(chunks, found_codes, found_frames, strict=False)
    )


@dataclass(slots=True)
class _Raw:
    offset: int
    predicate: str | None
    opcode: str
    operands: str
    frames: tuple[Frame, ...]


def _section(
    name: str, lines: Sequence[str], code: bytes, frames_at: Callable[[int], tuple[Frame, ...]] | None
) -> Listing:
    labels: dict[str, int] = {}
    raws: list[_Raw] = []
    printed = _Frames()
    for line in lines:
        if found := _INSTRUCTION.match(line):
            offset = int(found[1], 16)
            frames = printed.at_instruction()
            known = frames_at(offset) if frames_at is not None and frames else ()
            if known and (known[0].file, known[0].line) == (frames[0].file, frames[0].line):
                frames = known
            raws.append(_Raw(offset, found[2], found[3], found[4].rstrip(), frames))
        elif "//##" in line:
            printed.comment(line)
        elif found := _LABEL.match(line):
            labels[found[1]] = raws[-1].offset + INSTRUCTION_BYTES if raws else 0
    control = controls(code) if len(code) == len(raws) * INSTRUCTION_BYTES else (None,) * len(raws)
    instructions: list[Instruction] = []
    tables: set[int] = set()
    for index, raw in enumerate(raws):
        operands = raw.operands
        targets: tuple[int, ...] = ()
        if "BRANCH_TARGETS" in operands and (found := _TABLE.search(operands)):
            targets = tuple(labels[t] for t in found[1].split(",") if t in labels)
            tables.update(targets)
            operands = operands[: found.start()].rstrip()
        split = tuple(_split(operands.replace(".reuse", "")))
        instructions.append(
            Instruction(
                index=index,
                offset=raw.offset,
                predicate=raw.predicate,
                opcode=raw.opcode,
                operands=split,
                control=control[index],
                frames=raw.frames,
                target=_target(raw.opcode, split, labels),
                targets=targets,
            )
        )
    functions = sorted((at, label) for label, at in labels.items() if not label.startswith((".L_", ".text.")))
    return Listing(name, tuple(instructions), tuple(functions), tuple(sorted(tables)))


def _target(opcode: str, operands: Sequence[str], labels: dict[str, int]) -> int | None:
    """Return where a label operand points, for the instructions that name a place in the code.

    ``RET R20 `(f)`` and ``CALL R6 `(f)`` give the start of what their register is relative to, not where they go.
    """
    if not operands or "`(" not in operands[-1]:
        return None
    base = opcode.partition(".")[0]
    if base == "RET" or (base in ("CALL", "JMP", "BRX", "JMX") and any(_REGISTER.fullmatch(o) for o in operands)):
        return None
    found = _TARGET.fullmatch(operands[-1])
    return None if found is None else labels.get(found[1])


def _split(text: str) -> list[str]:
    """Split operands at the commas outside of brackets, braces and parentheses."""
    if not text:
        return []
    if not _NESTED_COMMA.search(text):
        # nvdisasm writes ``+INF , PT``.
        return [part.strip() for part in text.split(",")] if " ," in text else text.split(", ")
    parts: list[str] = []
    depth = start = 0
    for position, character in enumerate(text):
        if character in "[({":
            depth += 1
        elif character in "])}":
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return parts


class _Frames:
    """The source position in force: comments in a row are one inline stack, innermost first, until the next ones."""

    def __init__(self) -> None:
        self.stack: list[Frame] = []
        self.caller: Frame | None = None
        self.fresh = False
        self.known: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}
        self.current: tuple[Frame, ...] = ()

    def comment(self, line: str) -> None:
        positions = _POSITION.findall(line)
        if not positions:
            return
        named = _FUNCTION.search(line)
        frame = Frame(positions[0][0], int(positions[0][1]), named[1] if named else None)
        # The next line of a stack is where the previous one was inlined; anything else begins a new stack.
        if not self.fresh or self.caller is None or (self.caller.file, self.caller.line) != (frame.file, frame.line):
            self.stack = []
        self.stack.append(frame)
        self.caller = Frame(positions[1][0], int(positions[1][1])) if len(positions) > 1 else None
        self.fresh = True

    def at_instruction(self) -> tuple[Frame, ...]:
        if self.fresh:
            self.fresh = False
            stack = tuple([*self.stack, self.caller] if self.caller is not None else self.stack)
            self.current = self.known.setdefault(stack, stack)
        return self.current
