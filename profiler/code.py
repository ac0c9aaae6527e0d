"""Machine code as frozen values: Code -> Function -> Instruction, with the scheduling control word of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

# Every SASS instruction from Volta on is 128 bits.
INSTRUCTION_BYTES = 16


@dataclass(frozen=True, slots=True)
class Control:
    """The scheduling control word (bits 105-125 of the 128-bit instruction, Volta to Blackwell).

    ``stall`` issue cycles to the next instruction; ``yield_hint`` the scheduler is asked to prefer another warp next
    (the bit is 0 then); ``write_barrier``/``read_barrier`` the scoreboard (0-5) that the instruction sets until its
    result is written / its operands are read, None for none; ``wait_mask`` bit n: the instruction waits for scoreboard
    n; ``reuse`` operand cache flags.
    """

    stall: int
    yield_hint: bool
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int
    reuse: int

    @property
    def waits(self) -> tuple[int, ...]:
        """The scoreboards that the instruction waits for."""
        return tuple(n for n in range(6) if self.wait_mask >> n & 1)

    @property
    def sets(self) -> tuple[int, ...]:
        """The scoreboards that the instruction sets."""
        return tuple({b: None for b in (self.write_barrier, self.read_barrier) if b is not None})


@dataclass(frozen=True, slots=True)
class Frame:
    """A source position; ``function`` is the inlined function it lies in, where the line table says."""

    file: str
    line: int
    function: str | None = None


# The headers of a CUDA toolkit, wherever it lies: /usr/local/cuda-13.0/include, .../targets/x86_64-linux/include.
_TOOLKIT = re.compile(r"[/\\](cuda[^/\\]*|cuda[/\\]v[\d.]+|targets[/\\][^/\\]+)[/\\]include[/\\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``offset`` in bytes from the function's start.

    ``predicate`` as printed without ``@`` (``P0``, ``!UP1``), None when always executed. ``opcode`` with modifiers.
    ``frames`` innermost first (an inlined function's line, then where it was inlined), empty without line info.
    ``target`` is the offset a direct branch goes to within the function, None otherwise; ``targets`` those of an
    indirect branch (BRX), where the cubin lists them.
    """

    index: int
    offset: int
    predicate: str | None
    opcode: str
    operands: tuple[str, ...]
    control: Control | None
    frames: tuple[Frame, ...] = ()
    target: int | None = None
    targets: tuple[int, ...] = ()

    @property
    def frame(self) -> Frame | None:
        """The innermost line that is not in a header of the CUDA toolkit: ``__ldg`` is where it was called."""
        own = (f for f in self.frames if not _TOOLKIT.search(f.file))
        return next(own, self.frames[0] if self.frames else None)

    @property
    def base(self) -> str:
        """Opcode without modifiers, ``LDG`` of ``LDG.E.128``."""
        return self.opcode.partition(".")[0]

    @property
    def text(self) -> str:
        """The instruction as nvdisasm prints it."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class Function:
    """One function of a cubin. ``address`` is the absolute PC of its first instruction, None where not recorded.

    ``branch_targets`` are the offsets that any indirect branch (BRX) may reach, where the cubin lists them. ``inner``
    are the (offset, name) of device functions that the compiler put into this one's section.
    """

    name: str
    address: int | None
    instructions: tuple[Instruction, ...]
    branch_targets: tuple[int, ...] = ()
    inner: tuple[tuple[int, str], ...] = ()

    @cached_property
    def by_offset(self) -> dict[int, Instruction]:
        """{offset: instruction}."""
        return {i.offset: i for i in self.instructions}

    @property
    def has_control(self) -> bool:
        """False for debug builds (-G), which carry no scheduling codes, and for encodings that are not known."""
        return any(i.control is not None and (i.control.wait_mask or i.control.sets) for i in self.instructions)

    @property
    def size(self) -> int:
        """Bytes of code."""
        return len(self.instructions) * INSTRUCTION_BYTES


@dataclass(frozen=True)
class Code:
    """The code of one launch: the kernel first, then the functions it calls.

    ``digest`` is the SHA-256 of the cubin, ``sm`` its architecture (90). ``problems`` say what is missing and why.
    """

    digest: str
    sm: int
    functions: Mapping[str, Function]
    problems: tuple[str, ...] = ()

    def find(self, pc: int) -> tuple[Function, Instruction] | None:
        """Return the function and instruction at an absolute PC, None when it lies outside of them."""
        for function in self.functions.values():
            if function.address is not None and 0 <= pc - function.address < function.size:
                return function, function.by_offset[(pc - function.address) & ~(INSTRUCTION_BYTES - 1)]
        return None
