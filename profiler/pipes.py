"""Opcode and architecture -> the pipe that executes it, and how many cycles a warp instruction keeps it busy (pure).

From the table of arithmetic throughput in NVIDIA's CUDA C++ Programming Guide (results per clock and SM: a warp
instruction takes 32 of them, a scheduler has a quarter of an SM's lanes). Which opcodes run on which pipe follows the
pipe descriptions of the Nsight Compute manual; tests/test_uneven.py holds both to the planted kernels that keep a pipe
busy. Only what is certain is listed: the busiest pipe is a floor for a kernel's time, so an opcode too few does no harm
and one too many would.
"""

from __future__ import annotations

from enum import StrEnum


class Pipe(StrEnum):
    """An execution pipe of an SM's quarter, by Nsight Compute's name."""

    ALU = "alu"
    XU = "xu"
    FP64 = "fp64"


_OF = {
    opcode: pipe
    for pipe, opcodes in {
        Pipe.ALU: "LOP3 SHF IADD3 ISETP LEA SEL PRMT FMNMX FSETP FSEL VIMNMX IMNMX IABS I2FP",
        Pipe.XU: "MUFU",
        Pipe.FP64: "DADD DFMA DMUL DSETP",
    }.items()
    for opcode in opcodes.split()
}
# Cycles a warp instruction occupies its pipe, by compute capability. Consumer cards have next to no FP64 lanes: left
# out, as is Blackwell, whose integer lanes are counted otherwise.
_CYCLES: dict[tuple[int, int], dict[Pipe, float]] = {
    (7, 5): {Pipe.ALU: 2, Pipe.XU: 8},
    (8, 0): {Pipe.ALU: 2, Pipe.XU: 8, Pipe.FP64: 4},
    (8, 6): {Pipe.ALU: 2, Pipe.XU: 8},
    (8, 9): {Pipe.ALU: 2, Pipe.XU: 8},
    (9, 0): {Pipe.ALU: 2, Pipe.XU: 8, Pipe.FP64: 2},
}


def pipe_cycles(opcode: str, compute_capability: tuple[int, int] | None) -> tuple[Pipe, float] | None:
    """Return (pipe, cycles) of an opcode, with or without modifiers; None where that is not known for certain."""
    pipe = _OF.get(opcode.partition(".")[0])
    if pipe is None or compute_capability is None:
        return None
    cycles = _CYCLES.get(compute_capability, {}).get(pipe)
    return None if cycles is None else (pipe, cycles)
