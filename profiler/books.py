"""The closed books of one launch: Account and its parts, as frozen values.

Units: cycles per scheduler (SMSP), instructions are warp instructions, percentages are 0..100. None is "not
collected", never zero; ``Account.not_collected`` says which section of ncu would collect it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiler.model import LaunchProfile, Work
from profiler.opcodes import MemoryAccess, OpcodeClass
from profiler.vocabulary import WarpState

if TYPE_CHECKING:
    import pandas as pd


# Fewer samples than this: a share of one half has a standard error of 5 points or more.
ENOUGH_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Sampled:
    """An estimate from PC samples with its standard error, in the unit of the value; never mixed with counts."""

    value: float
    standard_error: float

    @classmethod
    def share(cls, count: float, total: float, scale: float = 100.0) -> Sampled:
        """Return count/total * scale with its binomial standard error, sqrt(p (1 - p) / n)."""
        p = count / total
        return cls(scale * p, scale * math.sqrt(max(0.0, p * (1.0 - p)) / total))


# Measured on an H200 (ncu 2025.3): a launch of 49 ms left 3,262,152 samples in a buffer of 33,554,432 bytes at one
# per 2,048 cycles, where half as many per cycle gave 3,062,392; "dropped bytes" was 0 both times.
BYTES_PER_SAMPLE = 72 / 7


def fills_buffer(samples: int, buffer_bytes: float | None) -> bool:
    """Say whether so many samples fill ncu's buffer: then what came after them is lost, whatever "dropped" says."""
    return buffer_bytes is not None and samples * BYTES_PER_SAMPLE >= 0.99 * buffer_bytes


@dataclass(frozen=True, slots=True)
class Samples:
    """PC samples of a launch, summed over all PCs, by state; ``not_issued`` are those in slots where nothing issued."""

    states: Mapping[WarpState, int]
    not_issued: Mapping[WarpState, int]
    interval_cycles: float | None
    dropped_bytes: int | None
    buffer_bytes: int | None = None

    @property
    def buffer_full(self) -> bool:
        """Whether the samples fill ncu's buffer, so that the rest of the launch was not sampled."""
        return fills_buffer(self.total, self.buffer_bytes)

    @property
    def total(self) -> int:
        """All samples."""
        return sum(self.states.values())

    @property
    def total_not_issued(self) -> int:
        """Samples in slots where nothing issued."""
        return sum(self.not_issued.values())

    def share(self, state: WarpState) -> Sampled | None:
        """Share of all samples in a state, in per cent; None without samples."""
        return Sampled.share(self.states.get(state, 0), self.total) if self.total else None


@dataclass(frozen=True, slots=True)
class IssueSlots:
    """Of 100 issue slots: how many issued, how many were lost, and to what.

    ``issued_pct`` and ``lost_pct`` (No Eligible) are counted and add to 100; ``lost`` splits lost_pct by the
    ``_not_issued`` samples and adds up to it. ``lost`` is empty when there are no such samples.
    """

    issued_pct: float
    lost_pct: float
    lost: Mapping[WarpState, Sampled]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Achieved and theoretical occupancy in per cent; ``limits`` are blocks per SM; ``limiters`` those that bind."""

    achieved_pct: float | None
    theoretical_pct: float | None
    limits: Mapping[str, int]
    limiters: tuple[str, ...]
    registers_per_thread: int | None
    shared_bytes_per_block: int | None
    waves_per_sm: float | None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Executed memory instructions of one space, kind and width."""

    access: MemoryAccess
    instructions: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """Tensor-core instructions and their MACs; ``macs`` is None if the shape of an opcode is ``unknown``."""

    instructions: int
    macs: int | None
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PerWork:
    """Costs per declared GMAC (1e9 MACs). ``padding_waste_pct``: the executed MACs that nobody asked for."""

    work: Work
    instructions: float | None
    cycles: float | None
    us: float | None
    bytes_per_mac: float | None
    padding_waste_pct: float | None


@dataclass(frozen=True, slots=True)
class NotCollected:
    """A quantity that the report does not hold, the metric that carries it, and the ncu section that collects it."""

    quantity: str
    metric: str
    section: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that a finding rests on."""

    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement with the rule that made it and the numbers it rests on. ``severity``: note, warning or lever."""

    rule: str
    severity: str
    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """What bounds a launch. ``kind``: compute, dram, l2, l1tex, issue, latency, small or unknown."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Row:
    """One number of the books as a table row; ``basis`` is counted, sampled or derived."""

    group: str
    name: str
    value: float | int | str | None
    unit: str
    basis: str
    standard_error: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The books of one launch (DESIGN: T = I * L / W / (A/E) / f and L = sum of its states).

    ``duration_ns`` T; ``issued_per_scheduler`` I; ``warp_cycles_per_issued_instruction`` L; ``active_warps`` W;
    ``active_cycles`` A and ``elapsed_cycles`` E per scheduler; ``clock_hz`` f; ``issue_rate`` r = I/A.
    ``residual_cycles`` = L - sum of states. ``identity_residual_pct`` = product / T - 1. ``derived`` says of the
    quantities that were not read directly how they were computed.
    """

    launch: LaunchProfile
    duration_ns: float | None
    clock_hz: float | None
    elapsed_cycles: float | None
    active_cycles: float | None
    issued_instructions: int | None
    issued_per_scheduler: float | None
    executed_instructions: int | None
    issue_rate: float | None
    active_warps: float | None
    eligible_warps: float | None
    warp_cycles_per_issued_instruction: float | None
    states: Mapping[WarpState, float]
    residual_cycles: float | None
    identity_residual_pct: float | None
    no_eligible_pct: float | None
    samples: Samples | None
    issue_slots: IssueSlots | None
    throughputs_pct: Mapping[str, float | None]
    threads_per_instruction: float | None
    occupancy: Occupancy
    opcodes: Mapping[str, int]
    opcode_classes: Mapping[OpcodeClass, int]
    memory: tuple[MemoryRow, ...]
    tensor: Tensor | None
    spill_instructions: int | None
    passes: int | None
    per_work: PerWork | None
    derived: Mapping[str, str]
    not_collected: tuple[NotCollected, ...]
    bound: Bound = Bound("unknown", "")
    findings: tuple[Finding, ...] = ()

    @property
    def active_share(self) -> float | None:
        """A/E: the part of the elapsed cycles in which a scheduler had a warp."""
        return _ratio(self.active_cycles, self.elapsed_cycles)

    @property
    def sampled_states(self) -> Mapping[WarpState, Sampled]:
        """Cycles per issued instruction by state, from the samples: their share of L, which is counted.

        They add up to L by construction. Empty without L, or with too few samples to split it. The standard error is
        that of counting; sampled shares also lean from counted ones by up to some points (docs/profiling.md).
        """
        latency, samples = self.warp_cycles_per_issued_instruction, self.samples
        if latency is None or samples is None or samples.total < ENOUGH_SAMPLES:
            return {}
        return {s: Sampled.share(n, samples.total, latency) for s, n in samples.states.items()}

    @property
    def residual_pct(self) -> float | None:
        """Residual of the state sum in per cent of L."""
        share = _ratio(self.residual_cycles, self.warp_cycles_per_issued_instruction)
        return None if share is None else 100.0 * share

    @property
    def top_state(self) -> WarpState | None:
        """The stall that lost most issue slots or, without enough samples, took most cycles; None if unknown."""
        n = self.samples.total_not_issued if self.samples is not None else 0
        if self.issue_slots is not None and self.issue_slots.lost and n >= ENOUGH_SAMPLES:
            lost = self.issue_slots.lost
            return max(lost, key=lambda s: lost[s].value)
        cycles = self.states or {s: v.value for s, v in self.sampled_states.items()}
        stalls = {s: v for s, v in cycles.items() if s.is_stall}
        return max(stalls, key=lambda s: stalls[s]) if stalls and max(stalls.values()) > 0 else None

    def rows(self) -> list[Row]:
        """Return the books as flat rows, in the order in which they are read."""
        r = [
            Row("time", "Duration", self.duration_ns, "ns", "counted"),
            Row("time", "SM Frequency", self.clock_hz, "Hz", "counted"),
            Row("time", "Elapsed Cycles", self.elapsed_cycles, "cycle", self._basis("elapsed_cycles")),
            Row("time", "Active Cycles", self.active_cycles, "cycle", self._basis("active_cycles")),
            Row("time", "Active Share", _percent(self.active_share), "%", "derived"),
            Row("time", "Identity Residual", self.identity_residual_pct, "%", "derived"),
            Row("instructions", "Issued Instructions", self.issued_instructions, "inst", "counted"),
            Row("instructions", "Executed Instructions", self.executed_instructions, "inst", "counted"),
            Row("scheduler", "Issue Rate", self.issue_rate, "inst/cycle", self._basis("issue_rate")),
            Row("scheduler", "Active Warps Per Scheduler", self.active_warps, "warp", self._basis("active_warps")),
            Row(
                "scheduler", "Eligible Warps Per Scheduler", self.eligible_warps, "warp", self._basis("eligible_warps")
            ),
            Row("scheduler", "No Eligible", self.no_eligible_pct, "%", self._basis("no_eligible_pct")),
            Row(
                "states", "Warp Cycles Per Issued Instruction", self.warp_cycles_per_issued_instruction, "cycle",
                self._basis("warp_cycles_per_issued_instruction"),
            ),
        ]  # fmt: skip
        r += [Row("states", s.value, v, "cycle", "counted") for s, v in self.states.items()]
        r.append(Row("states", "residual", self.residual_cycles, "cycle", "derived"))
        r += [
            Row("sampled states", s.value, v.value, "cycle", "sampled", v.standard_error)
            for s, v in self.sampled_states.items()
        ]
        if self.issue_slots is not None:
            r.append(Row("issue slots", "issued", self.issue_slots.issued_pct, "%", "counted"))
            r += [
                Row("issue slots", f"lost to {s.value}", v.value, "%", "sampled", v.standard_error)
                for s, v in self.issue_slots.lost.items()
            ]
        r += [Row("throughput", name, value, "%", "counted") for name, value in self.throughputs_pct.items()]
        o = self.occupancy
        r += [
            Row("occupancy", "Achieved Occupancy", o.achieved_pct, "%", "counted"),
            Row("occupancy", "Theoretical Occupancy", o.theoretical_pct, "%", "counted"),
            Row("occupancy", "Limiters", ", ".join(o.limiters) or None, "", "derived"),
            Row("occupancy", "Registers Per Thread", o.registers_per_thread, "register/thread", "counted"),
            Row("occupancy", "Waves Per SM", o.waves_per_sm, "", "counted"),
        ]
        r += [Row("opcode classes", c.value, n, "inst", "counted") for c, n in self.opcode_classes.items()]
        r += [Row("memory", m.access.name, m.instructions, "inst", "counted") for m in self.memory]
        if self.tensor is not None:
            r.append(Row("tensor", "Tensor Instructions", self.tensor.instructions, "inst", "counted"))
            r.append(Row("tensor", "Executed MACs", self.tensor.macs, "MAC", "derived"))
        if (w := self.per_work) is not None:
            r += [
                Row("per work", "Declared MACs", w.work.macs, "MAC", "declared"),
                Row("per work", "Instructions Per GMAC", w.instructions, "inst/GMAC", "derived"),
                Row("per work", "Cycles Per GMAC", w.cycles, "cycle/GMAC", "derived"),
                Row("per work", "us Per GMAC", w.us, "us/GMAC", "derived"),
                Row("per work", "Bytes Per MAC", w.bytes_per_mac, "byte/MAC", "derived"),
                Row("per work", "Padding Waste", w.padding_waste_pct, "%", "derived"),
            ]
        return r

    def _basis(self, quantity: str) -> str:
        return "derived" if quantity in self.derived else "counted"

    def to_frame(self) -> pd.DataFrame:
        """Return the books as a pandas DataFrame: launch, kernel, group, name, value, unit, basis, standard_error."""
        import pandas as pd

        frame = pd.DataFrame([{f: getattr(row, f) for f in Row.__dataclass_fields__} for row in self.rows()])
        frame.insert(0, "kernel", self.launch.kernel)
        frame.insert(0, "launch", self.launch.index)
        return frame

    def _repr_html_(self) -> str:
        from html import escape

        table = self.to_frame().drop(columns=["launch", "kernel"]).to_html(index=False, na_rep="")
        return f"<p><b>{escape(self.launch.kernel)}</b>: {escape(self.bound.sentence)}</p>{table}"


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def _percent(x: float | None) -> float | None:
    return None if x is None else 100.0 * x
