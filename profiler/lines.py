"""A cubin's line table -> the inline stack of each place in the code, with function names (pure).

nvdisasm prints the same table, but no function names, and it overlooks a change of the inline context while the
innermost line stays the same. ``.debug_line`` is DWARF 2 to 4; NVIDIA adds the extended opcode 0x90: a row's inline
context (the number of the row at which it was inlined, 0 for none) and the offset of its function's name in
``.debug_str``.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from profiler.code import Frame
from profiler.elf import Image

_INLINED_CALL = 0x90
# Bytes of a line table that are worth decoding here (a second): beyond, nvdisasm's stacks without names have to do.
MOST = 2 << 20


@dataclass(frozen=True, slots=True)
class LineTable:
    """The rows of one code section: at each of the ascending ``offsets``, a stack of frames, innermost first."""

    offsets: tuple[int, ...]
    stacks: tuple[tuple[Frame, ...], ...]

    def frames_at(self, offset: int) -> tuple[Frame, ...]:
        """Return the inline stack in force at an offset; of several rows at one offset the last one counts."""
        at = bisect_right(self.offsets, offset) - 1
        return self.stacks[at] if at >= 0 else ()


def line_tables(image: Image) -> dict[int, LineTable]:
    """Return {index of a code section: its rows}. What cannot be decoded is left out, without an error."""
    section = next((s for s in image.sections if s.name == ".debug_line"), None)
    if section is None or section.size > MOST:
        return {}
    strings = next((image.content(s) for s in image.sections if s.name == ".debug_str"), b"")
    rows: dict[int, list[tuple[int, tuple[Frame, ...]]]] = {}
    try:
        for number, address, stack in _rows(image.content(section), strings, dict(image.relocations_of(section))):
            symbol = image.symbols[number]
            rows.setdefault(symbol.section, []).append((symbol.value + address, stack))
    except (IndexError, struct.error):
        # A table that breaks off still tells what comes before.
        pass
    tables = {}
    for index, found in rows.items():
        found.sort(key=lambda row: row[0])
        tables[index] = LineTable(tuple(offset for offset, _ in found), tuple(stack for _, stack in found))
    return tables


def _rows(data: bytes, strings: bytes, symbols: Mapping[int, int]) -> Iterator[tuple[int, int, tuple[Frame, ...]]]:
    """Yield (symbol, address relative to it, stack) of every row. ``symbols`` is {position of an address: symbol}."""
    unit = 0
    while unit + 10 < len(data):
        length, version, header = struct.unpack_from("<IHI", data, unit)
        end = unit + 4 + length
        if version not in (2, 3, 4) or end > len(data):
            return
        # Version 4 has one more field, the operations of a VLIW instruction, before the flag that neither needs.
        at = unit + 10 + (version == 4)
        step, (base, span, first) = data[unit + 10], struct.unpack_from("<bBB", data, at + 2)
        arguments = data[at + 5 : at + 4 + first]
        program = _Program(data, strings, symbols, step, base, span, first, arguments, _files(data, at + 4 + first))
        yield from program.run(unit + 10 + header, end)
        unit = end


def _files(data: bytes, at: int) -> list[str]:
    """Return the file names of a unit, numbered from 1, with their folders as the compiler wrote them."""
    folders, files = [""], [""]
    while data[at]:
        text, at = _text(data, at)
        folders.append(text)
    at += 1
    while data[at]:
        text, at = _text(data, at)
        folder, at = _unsigned(data, at)
        _, at = _unsigned(data, at)
        _, at = _unsigned(data, at)
        place = folders[folder]
        files.append(text if not place or text.startswith("/") else f"{place.rstrip('/')}/{text}")
    return files


@dataclass(slots=True)
class _Program:
    """The line number program of one unit, a byte code for the rows of its table."""

    data: bytes
    strings: bytes
    symbols: Mapping[int, int]
    step: int
    base: int
    span: int
    first: int
    arguments: bytes
    files: list[str]

    def run(self, at: int, end: int) -> Iterator[tuple[int, int, tuple[Frame, ...]]]:
        data = self.data
        stacks: list[tuple[Frame, ...]] = []
        address, file, line, context, name, symbol = 0, 1, 1, 0, None, None
        while at < end:
            opcode = data[at]
            at += 1
            if opcode >= self.first:
                address += (opcode - self.first) // self.span * self.step
                line += self.base + (opcode - self.first) % self.span
            elif opcode == 0:
                size, at = _unsigned(data, at)
                kind, body = data[at], at + 1
                if kind == 1:
                    # The end of a sequence; contexts do not reach across it.
                    stacks, address, file, line, context, name, symbol = [], 0, 1, 1, 0, None, None
                elif kind == 2:
                    address, symbol = struct.unpack_from("<Q", data, body)[0], self.symbols.get(body)
                elif kind == _INLINED_CALL:
                    context, body = _unsigned(data, body)
                    start, _ = _unsigned(data, body)
                    name = _text(self.strings, start)[0] if context and start < len(self.strings) else None
                at += size
            elif opcode == 2:
                delta, at = _unsigned(data, at)
                address += delta * self.step
            elif opcode == 3:
                delta, at = _signed(data, at)
                line += delta
            elif opcode == 4:
                file, at = _unsigned(data, at)
            elif opcode == 8:
                address += (255 - self.first) // self.span * self.step
            elif opcode == 9:
                address += struct.unpack_from("<H", data, at)[0]
                at += 2
            elif opcode > 1:
                for _ in range(self.arguments[opcode - 1]):
                    _, at = _unsigned(data, at)
            if opcode == 1 or opcode >= self.first:
                outer = stacks[context - 1] if 0 < context <= len(stacks) else ()
                stacks.append((_frame(self.files[file], line, name), *outer))
                if symbol is not None:
                    yield symbol, address, stacks[-1]


@cache
def _frame(file: str, line: int, name: str | None) -> Frame:
    return Frame(file, line, plain_name(name) if name else None)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at) if b"\0" in data[at : at + 4096] else min(len(data), at + 4096)
    return data[at:end].decode("utf-8", errors="replace"), end + 1


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    start = at
    value, at = _unsigned(data, at)
    bits = 7 * (at - start)
    return (value - (1 << bits) if value >> (bits - 1) & 1 else value), at


# The pieces of template arguments that are not identifiers: substitutions, parameters, standard names, literals.
_PIECE = re.compile(r"S[0-9A-Z]*_|T\d*_|S[tabsiod]|L[a-z]n?\d+E|L_Z|\d+|.")


@cache
def plain_name(mangled: str) -> str:
    """Return the qualified name in an Itanium-mangled function name, without parameters and template arguments.

    ``_ZN3cub4warp4scanIiEEvT_`` is ``cub::warp::scan``. nvcc's name for the file that a static function is in is left
    out. A name that is not mangled, or not understood, stays as it is.
    """
    if not mangled.startswith("_Z"):
        return mangled
    rest = mangled[2:].removeprefix("L")
    nested = rest.startswith("N")
    if nested:
        rest = re.sub(r"^N[rVK]*[RO]?", "", rest)
    parts = ["std"] if rest.startswith("St") else []
    rest = rest.removeprefix("St")
    while found := re.match(r"L?(\d+)", rest):
        start, size = found.end(), int(found[1])
        if start + size > len(rest):
            return mangled
        parts.append(rest[start : start + size])
        rest = rest[start + size :]
        if rest.startswith("I"):
            rest = _after_arguments(rest)
        if not nested:
            break
    names = ["(anonymous)" if p.startswith("_GLOBAL__N") else p for p in parts if not p.startswith("_INTERNAL_")]
    return "::".join(names) if names and all(names) and names != ["std"] else mangled


def _after_arguments(rest: str) -> str:
    """Skip template arguments: I ... E, in which N, X, L, J, F and further I open what an E closes."""
    opened: list[str] = []
    at = 0
    while at < len(rest):
        piece = _PIECE.match(rest, at)
        if piece is None:
            break
        text, at = piece[0], piece.end()
        if text.isdigit():
            # A number is the length of an identifier, but for the value of an enumerator's literal, before its E.
            value = opened[-1:] == ["L"] and rest[at : at + 1] == "E" and rest[at - len(text) - 1] == "E"
            at += 0 if value else int(text)
        elif text in ("I", "N", "X", "L", "J", "F", "L_Z"):
            opened.append(text)
        elif text == "E" and opened:
            opened.pop()
            if not opened:
                return rest[at:]
    return rest[at:]
