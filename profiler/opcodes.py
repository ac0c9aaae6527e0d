"""SASS opcode strings -> class, memory access width, tensor-core MACs (pure).

Opcode names follow the instruction set tables of NVIDIA's "CUDA Binary Utilities" manual; matrix shapes are read
from the modifiers (``IMMA.16816.S8.S8`` is m16n8k16). MAC counts were checked on an H200 against matrix products of
known size, see tests/data/tensor_opcodes.json.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class OpcodeClass(StrEnum):
    """What a warp instruction is for; every opcode has exactly one class."""

    TENSOR = "tensor"
    GLOBAL_LOAD = "global load"
    GLOBAL_STORE = "global store"
    SHARED_LOAD = "shared load"
    SHARED_STORE = "shared store"
    LOCAL = "local memory"
    ASYNC_COPY = "async copy"
    ATOMIC = "atomic"
    TEXTURE = "texture/surface"
    CONSTANT_LOAD = "constant load"
    FP32 = "fp32"
    FP16 = "fp16"
    FP64 = "fp64"
    SPECIAL = "special function"
    CONVERSION = "conversion"
    INTEGER = "integer"
    MOVE = "move"
    UNIFORM = "uniform"
    PREDICATE = "predicate"
    CONTROL = "control"
    SYNC = "synchronisation"
    OTHER = "other"


_BY_NAME: dict[OpcodeClass, str] = {
    OpcodeClass.GLOBAL_LOAD: "LDG LD LDGMC",
    OpcodeClass.GLOBAL_STORE: "STG ST",
    OpcodeClass.SHARED_LOAD: "LDS LDSM LDTM LDT",
    OpcodeClass.SHARED_STORE: "STS STSM STAS STTM STT",
    OpcodeClass.LOCAL: "LDL STL",
    OpcodeClass.ASYNC_COPY: "LDGSTS UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UTCCP",
    OpcodeClass.ATOMIC: "ATOM ATOMS ATOMG RED REDG REDAS ATOMUR",
    OpcodeClass.TEXTURE: "TEX TLD TLD4 TMML TXD TXQ SULD SUST SURED SUATOM SUQUERY",
    OpcodeClass.CONSTANT_LOAD: "LDC ULDC LDCU",
    OpcodeClass.FP32: "FADD FADD2 FCHK FFMA FFMA2 FFMA32I FMNMX FMNMX3 FMUL FMUL2 FSEL FSET FSETP FSWZADD FADD32I "
    "FMUL32I FHADD FHFMA",
    OpcodeClass.FP16: "HADD2 HFMA2 HMNMX2 HMUL2 HSET2 HSETP2 HADD2_32I HFMA2_32I HMUL2_32I",
    OpcodeClass.FP64: "DADD DFMA DMUL DSETP DMNMX",
    OpcodeClass.SPECIAL: "MUFU",
    OpcodeClass.CONVERSION: "F2F F2I I2F I2I I2IP I2FP F2IP FRND F2FP F2F16 I2F16",
    OpcodeClass.INTEGER: "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMUL IMUL32I ISCADD ISCADD32I ISETP "
    "IMNMX LEA LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX SGXT",
    OpcodeClass.MOVE: "MOV MOV32I MOVM PRMT SEL SHFL S2R CS2R S2UR R2UR B2R R2B LEPC GETLMEMBASE SETLMEMBASE REDUX "
    "CREDUX VOTE MATCH",
    OpcodeClass.UNIFORM: "VOTEU",
    OpcodeClass.PREDICATE: "PLOP3 P2R R2P PSETP PSET",
    OpcodeClass.CONTROL: "BRA BRX BRXU BRK BREAK BMOV BPT BSSY BSYNC CALL EXIT JMP JMX JMXU KILL NANOSLEEP RET RPCMOV "
    "RTT WARPSYNC YIELD NOP BCONF PREEXIT ACQBULK ELECT ENDCOLLECTIVE",
    OpcodeClass.SYNC: "BAR DEPBAR LDGDEPBAR ARRIVES MEMBAR ERRBAR CCTL CCTLL CCTLT SYNCS UCGABAR_ARV UCGABAR_WAIT "
    "FENCE WARPGROUP WARPGROUPSET UTCBAR CGAERRBAR LDSLK PMTRIG",
}
_CLASS_OF = {name: cls for cls, names in _BY_NAME.items() for name in names.split()}
_TENSOR = re.compile(r"(U?TC)?[HIDBQOFGM]*G?MMA$")


@cache
def classify(opcode: str) -> OpcodeClass:
    """Return the class of an opcode, with or without modifiers; ``OTHER`` for a name that is not in the tables.

    ``IMAD.MOV`` copies a register and counts as a move, though it uses the FMA pipe.
    """
    base, _, modifiers = opcode.partition(".")
    if base in _CLASS_OF:
        return OpcodeClass.MOVE if base == "IMAD" and modifiers.startswith("MOV") else _CLASS_OF[base]
    if _TENSOR.match(base):
        return OpcodeClass.TENSOR
    if base.startswith("U"):
        return OpcodeClass.UNIFORM
    return OpcodeClass.OTHER


def tensor_macs(opcode: str) -> int | None:
    """Return the multiply-accumulates of one warp instruction, or None when the opcode does not tell.

    ``HMMA.16816`` m16n8k16 = 2048, ``IMMA.16832`` 4096, ``DMMA.16x8x8`` 1024. Warpgroup instructions
    (``HGMMA.64x128x16``) are executed by four warps, each of which counts a quarter. With ``.SP`` the K of the name
    is the logical, uncompressed one. None: Volta's ``HMMA.884`` steps, and tcgen05 instructions, whose shape is in a
    descriptor.
    """
    base, *modifiers = opcode.split(".")
    if classify(opcode) is not OpcodeClass.TENSOR or base.startswith("UTC"):
        return None
    for modifier in modifiers:
        if found := re.fullmatch(r"(\d+)x(\d+)x(\d+)", modifier):
            m, n, k = map(int, found.groups())
            return m * n * k // 4 if base.endswith("GMMA") else m * n * k
        if re.fullmatch(r"\d{3,6}", modifier):
            if modifier == "884" and base == "HMMA":
                return None
            return _packed_shape(modifier)
    return None


def _packed_shape(digits: str) -> int | None:
    """``16816`` -> 16*8*16, ``884`` -> 8*8*4, ``88128`` -> 8*8*128; None when it is neither m16n8 nor m8n8."""
    for prefix, mn in (("168", 128), ("88", 64)):
        if digits.startswith(prefix) and len(digits) > len(prefix):
            return mn * int(digits[len(prefix) :])
    return None


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """How an instruction touches memory: ``space`` (global, shared, ...), ``kind`` (load, store, copy), bits a thread.

    ``bits`` is None for bulk copies (UBLKCP, UTMA*), whose size is not in the opcode.
    """

    space: str
    kind: str
    bits: int | None

    @property
    def name(self) -> str:
        """Name for people, ``global load 128 bit``."""
        width = "" if self.bits is None else f" {self.bits} bit"
        return f"{self.space} {self.kind}{width}"


_SPACES = {
    "LDG": ("global", "load"), "LD": ("generic", "load"), "LDS": ("shared", "load"), "LDSM": ("shared", "load"),
    "LDL": ("local", "load"), "STG": ("global", "store"), "ST": ("generic", "store"), "STS": ("shared", "store"),
    "STSM": ("shared", "store"), "STL": ("local", "store"), "LDGSTS": ("global to shared", "copy"),
    "UBLKCP": ("bulk", "copy"), "UTMALDG": ("bulk", "load"), "UTMASTG": ("bulk", "store"),
}  # fmt: skip
_MATRIX_TILES = {"1": 32, "2": 64, "4": 128}


@cache
def memory_access(opcode: str) -> MemoryAccess | None:
    """Return the access of a load, store or copy opcode (with all modifiers), None for other instructions.

    No width modifier means 32 bits. LDSM/STSM move 8x8 tiles of 16 bit: 32 bits a thread and tile, so ``.4`` is 128.
    """
    base, *modifiers = opcode.split(".")
    if base not in _SPACES:
        return None
    space, kind = _SPACES[base]
    if space == "bulk":
        return MemoryAccess(space, kind, None)
    if base in ("LDSM", "STSM"):
        return MemoryAccess(space, kind, next((_MATRIX_TILES[m] for m in modifiers if m in _MATRIX_TILES), 32))
    bits = 32
    for modifier in modifiers:
        if modifier in ("U8", "S8"):
            bits = 8
        elif modifier in ("U16", "S16"):
            bits = 16
        elif modifier in ("64", "128"):
            bits = int(modifier)
        elif modifier in ("256", "ENL2"):
            bits = 256
    return MemoryAccess(space, kind, bits)
