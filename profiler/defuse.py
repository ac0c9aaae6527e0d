"""Instruction -> registers read and written; reaching definitions and live registers of a function (pure).

Registers are small integers: R0.. from 0, uniform UR0.. from 1000, predicates P0.. from 2000, UP0.. from 3000. RZ,
URZ, PT and UPT are no registers. How many registers an operand spans follows from the opcode's modifiers (widths,
matrix shapes); where the tables do not tell, an operand is one register.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from profiler.cfg import FlowGraph
from profiler.code import Instruction
from profiler.opcodes import OpcodeClass, classify

UNIFORM, PREDICATE, UNIFORM_PREDICATE = 1000, 2000, 3000
_KINDS = {"R": 0, "UR": UNIFORM, "P": PREDICATE, "UP": UNIFORM_PREDICATE}
_REGISTER = re.compile(r"(?<![A-Za-z0-9_])(UR|UP|R|P)(\d+)(\.64)?(?![0-9A-Za-z_])")
_PREDICATE_OPERAND = re.compile(r"U?P(\d|T)")

_NO_RESULT = frozenset(
    "ST STG STS STL STSM STAS STTM STT RED REDG REDAS SUST SURED BAR BRA BRX BRXU JMP JMX JMXU EXIT RET KILL MEMBAR "
    "ERRBAR DEPBAR LDGDEPBAR LDGSTS UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UTCCP "
    "CCTL CCTLL CCTLT WARPSYNC NOP YIELD NANOSLEEP BSSY BSYNC BREAK FENCE WARPGROUP ARRIVES CALL BPT UCGABAR_ARV "
    "UCGABAR_WAIT UTCBAR UTCHMMA UTCQMMA UTCIMMA UTCOMMA PREEXIT ACQBULK".split()
)
# Opcodes whose first operands are one or two predicates that they write.
_SETS_PREDICATES = frozenset(
    "ISETP FSETP DSETP HSETP2 UISETP UFSETP PSETP PLOP3 UPLOP3 FCHK VOTEU SYNCS ELECT R2P UCGABAR VSETP".split()
)
_CARRIES = frozenset({"IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "IADD", "VOTE", "VIADD", "UIADD", "MATCH"})
_WIDTHS = {"64": 2, "128": 4, "256": 8, "ENL2": 8}
# Two float32 in a register pair (Blackwell).
_PACKED = frozenset({"FADD2", "FFMA2", "FMUL2"})
# (A, B, C/D) registers of matrix instructions by shape digits; C/D of a 16-bit accumulator takes half.
_MATRIX = {
    "16816": (4, 2, 4), "1688": (2, 1, 4), "1684": (2, 1, 4), "16832": (4, 2, 4), "16864": (4, 2, 4), "8816": (1, 1, 2),
    "8832": (1, 1, 2), "168128": (2, 1, 4), "168256": (4, 2, 4), "88128": (1, 1, 2),
}  # fmt: skip
_INTEGER_MATRIX = {"16816": (2, 1, 4), "16832": (4, 2, 4), "16864": (4, 2, 4)}
_DOUBLE_MATRIX = {"8x8x4": (2, 2, 4), "16x8x4": (4, 2, 8), "16x8x8": (8, 4, 8), "16x8x16": (16, 8, 8), "884": (2, 2, 4)}


@dataclass(frozen=True, slots=True)
class Access:
    """Registers that an instruction reads and writes; ``addresses`` are the reads inside brackets."""

    reads: frozenset[int]
    writes: frozenset[int]
    addresses: frozenset[int]


def access_of(instruction: Instruction) -> Access:
    """Return the registers of an instruction, its guard predicate among the reads."""
    operands = instruction.operands
    results = result_count(instruction)
    width = result_width(instruction)
    writes: set[int] = set()
    reads: set[int] = set()
    addresses: set[int] = set()
    for position, operand in enumerate(operands):
        if position < results:
            writes.update(_span(operand, 1 if _PREDICATE_OPERAND.fullmatch(operand) else width))
            if instruction.base == "R2P":
                writes.update(range(PREDICATE, PREDICATE + 7))
            continue
        if "[" in operand:
            inside = set(_span(operand, 1))
            addresses |= inside
            reads |= inside
        else:
            reads.update(_span(operand, source_width(instruction, position, results)))
    if instruction.base == "P2R":
        reads.update(range(PREDICATE, PREDICATE + 7))
    if instruction.predicate:
        reads.update(_span(instruction.predicate, 1))
    return Access(frozenset(reads), frozenset(writes), frozenset(addresses))


@lru_cache(maxsize=1 << 16)
def _span(operand: str, width: int) -> tuple[int, ...]:
    found: list[int] = []
    for kind, number, pair in _REGISTER.findall(operand):
        first = _KINDS[kind] + int(number)
        # A descriptor names a pair of uniform registers, an address with .64 a pair of registers.
        wide = 2 if pair or (kind == "UR" and "desc[" in operand) else width
        found += range(first, first + wide)
    return tuple(found)


@lru_cache(maxsize=4096)
def _modifiers(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split(".")[1:])


def result_count(instruction: Instruction) -> int:
    """Return how many leading operands the instruction writes."""
    base, operands = instruction.base, instruction.operands
    if base in _NO_RESULT or not operands:
        return 0
    first_is_predicate = _PREDICATE_OPERAND.fullmatch(operands[0]) is not None
    if base in _SETS_PREDICATES:
        count = 0
        while count < min(2, len(operands)) and _PREDICATE_OPERAND.fullmatch(operands[count]):
            count += 1
        return count
    if first_is_predicate:
        # LOP3.LUT P0, R1, ...; SHFL PT, R1, ...; ATOMG PT, R1, ...
        return 2
    count = 1
    if base in _CARRIES:
        while count < min(3, len(operands)) and _PREDICATE_OPERAND.fullmatch(operands[count]):
            count += 1
        if base in ("VOTE", "MATCH"):
            count = min(count, 2)
    return count


def result_width(instruction: Instruction) -> int:
    """Return how many registers each written register operand spans."""
    base, modifiers = instruction.base, _modifiers(instruction.opcode)
    cls = classify(instruction.opcode)
    if base == "LDSM":
        # LDSM.16.M88.4: the last number counts the 8x8 tiles.
        return next((int(m) for m in reversed(modifiers) if m in ("1", "2", "4")), 1)
    if base == "LDTM":
        return next((int(m[1:]) for m in modifiers if m[:1] == "x" and m[1:].isdigit()), 1)
    if cls is OpcodeClass.TENSOR:
        return _matrix_widths(instruction)[2]
    if base.startswith("LD") or base in ("ULDC", "LDCU") or cls in (OpcodeClass.ATOMIC, OpcodeClass.TEXTURE):
        return _width(modifiers)
    if base in ("DADD", "DFMA", "DMUL") or "WIDE" in modifiers or modifiers[:1] == ("F64",):
        return 2
    if base == "CS2R":
        return 1 if "32" in modifiers else 2
    return 2 if base in _PACKED or "64" in modifiers else 1


def source_width(instruction: Instruction, position: int, results: int) -> int:
    """Return how many registers a source operand outside brackets spans."""
    base, modifiers = instruction.base, _modifiers(instruction.opcode)
    nth = position - results
    if base in ("STG", "ST", "STS", "STL"):
        return _width(modifiers)
    if base in ("DADD", "DFMA", "DMUL", "DSETP") or (base in ("F2F", "F2I") and "F64" in modifiers[1:]):
        return 2
    if base in ("IMAD", "UIMAD") and "WIDE" in modifiers:
        return 2 if nth == 2 else 1
    if base in _PACKED or ("64" in modifiers and classify(instruction.opcode) is not OpcodeClass.ATOMIC):
        return 2
    if classify(instruction.opcode) is OpcodeClass.TENSOR:
        a, b, c = _matrix_widths(instruction)
        return (a, b, c)[nth] if nth < 3 else 1
    return 1


def _width(modifiers: tuple[str, ...]) -> int:
    """Registers of a load or store by its width modifier; none means 32 bits."""
    return next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 1)


def _matrix_widths(instruction: Instruction) -> tuple[int, int, int]:
    base, modifiers = instruction.base, _modifiers(instruction.opcode)
    for m in modifiers:
        if base.endswith("GMMA") and (found := re.fullmatch(r"(\d+)x(\d+)x(\d+)", m)):
            # 128 threads hold the 64 x N result; A in registers is 64 x K of 16 bit or less: four registers.
            size = int(found[1]) * int(found[2]) // 128
            return 4, 1, max(1, size // 2 if "F16" in modifiers else size)
        if base == "DMMA" and m in _DOUBLE_MATRIX:
            return _DOUBLE_MATRIX[m]
        if base in ("IMMA", "BMMA") and m in _INTEGER_MATRIX:
            return _INTEGER_MATRIX[m]
        if m in _MATRIX:
            a, b, c = _MATRIX[m]
            if "TF32" in modifiers and m == "1688":
                a, b = 4, 2
            return a, b, c // 2 if "F16" in modifiers and "F32" not in modifiers else c
    return 4, 2, 4


class DefUse:
    """Def-use of one function: accesses, reaching definitions on demand, live registers."""

    def __init__(self, graph: FlowGraph) -> None:
        """Wrap a function's flow graph; everything is computed when first asked for."""
        self.graph = graph
        self.code = graph.function.instructions

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Registers read and written, by instruction."""
        return tuple(access_of(i) for i in self.code)

    @cached_property
    def _writers(self) -> dict[int, list[int]]:
        """{register: positions that write it, ascending}."""
        found: dict[int, list[int]] = {}
        for position, access in enumerate(self.accesses):
            for register in access.writes:
                found.setdefault(register, []).append(position)
        return found

    def writers(self, register: int) -> list[int]:
        """Return the positions that write a register, ascending."""
        return self._writers.get(register, [])

    def reaching(self, position: int, register: int, limit: int = 4_000) -> dict[int, int]:
        """Return {definition: loop back edges crossed} of a register as read at a position.

        A guarded definition ends the search when the reader has the same guard, or when its complement (@P0 and @!P0)
        was met on the same path, as long as the predicate was not rewritten in between. At most ``limit`` basic blocks
        are walked; beyond them the result is what was found.
        """
        writers = self._writers.get(register)
        if not writers:
            return {}
        found: dict[int, int] = {}
        own = _guard(self.code[position].predicate)
        # Guards under which nothing earlier can reach: the reader does not run, or a later definition was seen.
        closed = frozenset({_complement(own)}) if own is not None else frozenset[str]()
        seen: set[tuple[int, frozenset[str]]] = set()
        work: deque[tuple[int, frozenset[str], int]] = deque([(position, closed, 0)])
        started = False
        while work and limit:
            limit -= 1
            end, guards, crossed = work.popleft()
            # ``end`` is exclusive: one past a predecessor, or the reader itself, first thing.
            inside = position if end == position and not started else end - 1
            started = True
            first = self.graph.blocks[self.graph.block_of[inside]][0]
            killed = False
            below = end
            for n in range(bisect_left(writers, end) - 1, -1, -1):
                p = writers[n]
                if p < first:
                    break
                guards = self._still_valid(guards, p + 1, below)
                below = p + 1
                found[p] = min(crossed, found.get(p, crossed))
                guard = _guard(self.code[p].predicate)
                if guard is None or _complement(guard) in guards:
                    killed = True
                    break
                guards = guards | {guard}
            if killed:
                continue
            guards = self._still_valid(guards, first, below)
            for p in self.graph.predecessors[first]:
                carried = (p, first) in self.graph.back_edges
                if (p, guards) not in seen:
                    seen.add((p, guards))
                    (work.append if carried else work.appendleft)((p + 1, guards, crossed + carried))
        return found

    def _still_valid(self, guards: frozenset[str], start: int, end: int) -> frozenset[str]:
        """Drop the guards whose predicate is rewritten in [start, end): they speak of another value there."""
        if not guards:
            return guards
        return frozenset(g for g in guards if not self._written_between(_number(g), start, end))

    def _written_between(self, register: int, start: int, end: int) -> bool:
        writers = self._writers.get(register, [])
        at = bisect_left(writers, start)
        return at < len(writers) and writers[at] < end

    @cached_property
    def live_counts(self) -> tuple[int, ...]:
        """General registers live at each instruction (read later, or written here)."""
        blocks, successors = self.graph.blocks, self.graph.successors
        block_of = self.graph.block_of
        gen: list[set[int]] = []
        kill: list[set[int]] = []
        for first, end in blocks:
            uses: set[int] = set()
            defs: set[int] = set()
            for i in range(first, end):
                uses |= _general(self.accesses[i].reads) - defs
                if self.code[i].predicate is None:
                    defs |= _general(self.accesses[i].writes)
            gen.append(uses)
            kill.append(defs)
        live_in = [set(g) for g in gen]
        live_out: list[set[int]] = [set() for _ in blocks]
        into: list[set[int]] = [set() for _ in blocks]
        for b, (_, end) in enumerate(blocks):
            for s in successors[end - 1]:
                into[block_of[s]].add(b)
        work = list(range(len(blocks)))
        while work:
            b = work.pop()
            out: set[int] = set()
            for s in successors[blocks[b][1] - 1]:
                out |= live_in[block_of[s]]
            live_out[b] = out
            new = gen[b] | (out - kill[b])
            if new != live_in[b]:
                live_in[b] = new
                work.extend(into[b])
        counts = [0] * len(self.code)
        for b, (first, end) in enumerate(blocks):
            live = set(live_out[b])
            for i in range(end - 1, first - 1, -1):
                written = _general(self.accesses[i].writes)
                counts[i] = len(live | written | _general(self.accesses[i].reads))
                if self.code[i].predicate is None:
                    live -= written
                live |= _general(self.accesses[i].reads)
        return tuple(counts)


def _guard(predicate: str | None) -> str | None:
    return None if predicate in (None, "PT", "UPT") else predicate


def _number(predicate: str) -> int:
    name = predicate.lstrip("!")
    return _KINDS[name.rstrip("0123456789")] + int(name.lstrip("UP"))


def _complement(predicate: str) -> str:
    return predicate[1:] if predicate.startswith("!") else f"!{predicate}"


def _general(registers: Iterable[int]) -> set[int]:
    return {r for r in registers if r < UNIFORM}
