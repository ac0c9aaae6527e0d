"""Cubins as ELF images: bytes -> sections, symbols, code of each function, architecture.

Only what cyinst needs of 64-bit little-endian ELF. Layout as in the System V ABI; NVIDIA's extensions (machine 190,
the architecture in ``e_flags``, symbols that the driver has relocated) as found in cubins of CUDA 10 to 13.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from profiler.errors import ReportError

MAGIC = b"\x7fELF"
MACHINE_CUDA = 190
# From this e_ident[EI_OSABI] on (CUDA 13, and newer architectures before), the architecture is in bits 8-15.
_OSABI_NEW = 65

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 2, 4, 8, 9
_SHF_EXECUTABLE = 4
_STT_FUNC, _STT_SECTION = 2, 3
TEXT = ".text."


@dataclass(frozen=True, slots=True)
class Section:
    """A section: ``offset`` and ``size`` in bytes of the image, ``info`` and ``link`` as its type defines them."""

    index: int
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def is_code(self) -> bool:
        """Whether it holds instructions."""
        return bool(self.flags & _SHF_EXECUTABLE) and self.name.startswith(TEXT)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: ``value`` is an offset in its section or, once the driver has relocated it, an absolute address."""

    index: int
    name: str
    kind: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        """Whether it names a function (a kernel, or a device function that may lie inside a kernel's section)."""
        return self.kind == _STT_FUNC


@dataclass(frozen=True)
class Image:
    """A cubin. Every section lies inside ``data``: ``parse`` has checked it."""

    data: bytes
    sm: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    symbols_offset: int

    def content(self, section: Section) -> bytes:
        """Return the bytes of a section."""
        return self.data[section.offset : section.offset + section.size]

    @cached_property
    def code_sections(self) -> tuple[Section, ...]:
        """The sections that hold instructions, in the order of the section table."""
        return tuple(s for s in self.sections if s.is_code)

    @cached_property
    def functions(self) -> dict[int, tuple[Symbol, ...]]:
        """{index of a code section: its function symbols}."""
        found: dict[int, list[Symbol]] = {s.index: [] for s in self.code_sections}
        for symbol in self.symbols:
            if symbol.is_function and symbol.section in found:
                found[symbol.section].append(symbol)
        return {index: tuple(symbols) for index, symbols in found.items()}

    def entry(self, section: Section) -> Symbol | None:
        """Return the symbol of the function that a code section is named after, None when it has no symbol."""
        symbols = self.functions[section.index]
        named = [s for s in symbols if TEXT + s.name == section.name]
        return next(iter(named or [s for s in symbols if s.value == 0]), None)

    def base(self, section: Section) -> int | None:
        """Return the address at which the driver put a section, where the image records it (ncu before 2022.2)."""
        entry = self.entry(section)
        return entry.value if entry is not None and entry.value >= max(section.size, 1) else None

    def callees(self, section: Section) -> frozenset[int]:
        """Return the indices of the code sections that a section's relocations refer to: the functions it calls."""
        return self._calls.get(section.index, frozenset())

    @cached_property
    def _calls(self) -> dict[int, frozenset[int]]:
        code = {s.index for s in self.code_sections}
        found: dict[int, set[int]] = {}
        for table, _, number in self._relocations(code):
            if self.symbols[number].section in code - {table.info}:
                found.setdefault(table.info, set()).add(self.symbols[number].section)
        return {index: frozenset(sections) for index, sections in found.items()}

    def relocations_of(self, section: Section) -> Iterator[tuple[int, int]]:
        """Yield (offset in a section, index of the symbol whose address belongs there)."""
        for _, position, number in self._relocations({section.index}):
            yield position, number

    def unrelocated(self) -> Image:
        """Return the image with code addresses as offsets again, itself when they are.

        Images of old reports carry the addresses of the process that ran them, in function symbols and in debug tables;
        nvdisasm refuses the former and does not come to an end over the latter.
        """
        bases = {s.index: base for s in self.code_sections if (base := self.base(s)) is not None}
        if not bases:
            return self
        patched = bytearray(self.data)
        for symbol in self.symbols:
            base = bases.get(symbol.section)
            if base is not None and symbol.kind in (_STT_FUNC, _STT_SECTION) and symbol.value >= base:
                field = self.symbols_offset + symbol.index * _SYMBOL.size + 8
                struct.pack_into("<Q", patched, field, symbol.value - base)
        for table, position, number in self._relocations({s.index for s in self.sections if not s.is_code}):
            target = self.sections[table.info]
            if position + 8 > target.size:
                continue
            base = bases.get(self.symbols[number].section)
            (value,) = struct.unpack_from("<Q", patched, target.offset + position)
            if base is not None and value >= base:
                struct.pack_into("<Q", patched, target.offset + position, value - base)
        return parse(bytes(patched))

    def _relocations(self, targets: Set[int]) -> Iterator[tuple[Section, int, int]]:
        """Yield (relocation table, offset in the section that it is for, symbol index) for some target sections."""
        for table in self.sections:
            if table.kind in (_SHT_REL, _SHT_RELA) and table.info in targets:
                width = 16 if table.kind == _SHT_REL else 24
                for at in range(table.offset, table.offset + table.size - width + 1, width):
                    position, _, number = struct.unpack_from("<QII", self.data, at)
                    if number < len(self.symbols):
                        yield table, position, number


def parse(data: bytes) -> Image:
    """Read a cubin. Raises ReportError, in one line, for anything that is not a whole 64-bit CUDA ELF image."""
    try:
        return _parse(data)
    except (struct.error, IndexError, OverflowError) as error:
        raise ReportError(f"the embedded cubin is damaged: its tables break off ({error})") from None


def _parse(data: bytes) -> Image:
    if data[:4] != MAGIC:
        raise ReportError("the embedded cubin is damaged: it does not start with ELF's mark")
    if len(data) < _HEADER.size or data[4:6] != b"\x02\x01":
        raise ReportError("the embedded cubin is no 64-bit little-endian ELF image, or is cut off in its header")
    ident, _, machine, _, _, _, table, flags, _, _, _, width, count, names = _HEADER.unpack_from(data)
    if machine != MACHINE_CUDA:
        raise ReportError(f"the embedded code is not for a GPU (ELF machine {machine}, not {MACHINE_CUDA})")
    if width != _SECTION.size or table + count * width > len(data):
        raise ReportError(f"the embedded cubin is damaged: its section table runs past its {len(data)} bytes")
    rows = [_SECTION.unpack_from(data, table + i * width) for i in range(count)]
    for i, row in enumerate(rows):
        if row[1] != _SHT_NOBITS and row[4] + row[5] > len(data):
            raise ReportError(f"the embedded cubin is damaged: section {i} runs past its {len(data)} bytes")
    if names >= count:
        raise ReportError("the embedded cubin is damaged: it has no section names")
    sections = tuple(
        Section(i, _string(data, rows[names], name), kind, flags_, offset, size, link, info)
        for i, (name, kind, flags_, _, offset, size, link, info, _, _) in enumerate(rows)
    )
    symbols: list[Symbol] = []
    start = 0
    for section in sections:
        if section.kind == _SHT_SYMTAB and not symbols:
            start = section.offset
            for i in range(section.size // _SYMBOL.size):
                name, info, _, index, value, size = _SYMBOL.unpack_from(data, start + i * _SYMBOL.size)
                symbols.append(Symbol(i, _string(data, rows[section.link], name), info & 15, index, value, size))
    return Image(data, architecture(ident[7], flags), sections, tuple(symbols), start)


def _string(data: bytes, table: tuple[int, ...], position: int) -> str:
    start, end = table[4] + position, table[4] + table[5]
    stop = data.find(b"\0", start, end)
    return data[start : stop if stop >= 0 else end].decode("utf-8", errors="replace")


def architecture(os_abi: int, flags: int) -> int:
    """Return the SM version (90 for sm_90) from an ELF header's OS ABI and flags."""
    return (flags >> 8 if os_abi >= _OSABI_NEW else flags) & 0xFF


def carve(data: bytes) -> Iterator[bytes]:
    """Yield the CUDA ELF images that lie anywhere in some bytes, for containers that cannot be walked.

    The section table may stand before the sections, so an image ends where the last of both does.
    """
    position = data.find(MAGIC)
    while position >= 0:
        end = position + 4
        if len(data) - position >= _HEADER.size:
            header = _HEADER.unpack_from(data, position)
            machine, table, width, count = header[2], header[6], header[11], header[12]
            inside = position + table + count * width <= len(data)
            if machine == MACHINE_CUDA and width == _SECTION.size and inside:
                rows = [_SECTION.unpack_from(data, position + table + i * width) for i in range(count)]
                size = max([table + count * width, *(r[4] + r[5] for r in rows if r[1] != _SHT_NOBITS)])
                if position + size <= len(data):
                    # Program headers may follow the section table.
                    programs = header[5] + header[9] * header[10]
                    end = position + max(size, programs if position + programs <= len(data) else 0)
                    yield data[position:end]
        position = data.find(MAGIC, end)
