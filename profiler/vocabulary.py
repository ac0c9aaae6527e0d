"""The only home of Nsight Compute's metric strings: warp states, metric specs, the section that collects each.

Labels are Nsight Compute's own. Section names are the identifiers that ``ncu --section`` takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WarpState(StrEnum):
    """A warp scheduler state, named as the counted metrics name it.

    The counted family says ``no_instruction`` and ``gmma`` where the sampled one says ``no_instructions`` and
    ``warpgroup_arrive``; both map to one member here.
    """

    SELECTED = "selected"
    NOT_SELECTED = "not_selected"
    LONG_SCOREBOARD = "long_scoreboard"
    SHORT_SCOREBOARD = "short_scoreboard"
    WAIT = "wait"
    MATH_PIPE_THROTTLE = "math_pipe_throttle"
    MIO_THROTTLE = "mio_throttle"
    LG_THROTTLE = "lg_throttle"
    TEX_THROTTLE = "tex_throttle"
    BARRIER = "barrier"
    MEMBAR = "membar"
    BRANCH_RESOLVING = "branch_resolving"
    DISPATCH_STALL = "dispatch_stall"
    NO_INSTRUCTION = "no_instruction"
    IMC_MISS = "imc_miss"
    GMMA = "gmma"
    DRAIN = "drain"
    SLEEPING = "sleeping"
    MISC = "misc"

    @property
    def label(self) -> str:
        """Nsight Compute's label, e.g. ``Stall Long Scoreboard``; ``Selected`` is an issued cycle, not a stall."""
        words = {"lg": "LG", "imc": "IMC", "mio": "MIO", "gmma": "GMMA"}
        text = " ".join(words.get(w, w.capitalize()) for w in self.value.removesuffix("_stall").split("_"))
        return text if self is WarpState.SELECTED else f"Stall {text}"

    @property
    def is_stall(self) -> bool:
        """True when a warp in this state could not have issued (neither selected nor merely not selected)."""
        return self not in (WarpState.SELECTED, WarpState.NOT_SELECTED)

    @property
    def meaning(self) -> str:
        """What a warp in this state waits for, in a few words."""
        return _MEANING[self]

    @property
    def counted_metric(self) -> str:
        """Warp cycles per issued instruction in this state. Its unit string says ``inst``; it means cycles."""
        return f"smsp__average_warps_issue_stalled_{self.value}_per_issue_active.ratio"

    @property
    def sampled_metric(self) -> str:
        """PC samples in this state; the instances are per PC."""
        return f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED.get(self, self.value)}"

    @property
    def sampled_not_issued_metric(self) -> str:
        """PC samples in this state, taken in cycles in which the scheduler issued nothing."""
        return f"{self.sampled_metric}_not_issued"


_SAMPLED = {WarpState.NO_INSTRUCTION: "no_instructions", WarpState.GMMA: "warpgroup_arrive"}
_MEANING = {
    WarpState.SELECTED: "issuing an instruction",
    WarpState.NOT_SELECTED: "ready, another warp was picked",
    WarpState.LONG_SCOREBOARD: "data from global or local memory",
    WarpState.SHORT_SCOREBOARD: "data from shared memory, MUFU, ...",
    WarpState.WAIT: "a fixed-latency dependency",
    WarpState.MATH_PIPE_THROTTLE: "a busy math pipe",
    WarpState.MIO_THROTTLE: "a full memory input/output queue",
    WarpState.LG_THROTTLE: "a full local/global memory queue",
    WarpState.TEX_THROTTLE: "a full texture queue",
    WarpState.BARRIER: "other warps at a block barrier",
    WarpState.MEMBAR: "a memory fence",
    WarpState.BRANCH_RESOLVING: "a branch target",
    WarpState.DISPATCH_STALL: "the dispatcher",
    WarpState.NO_INSTRUCTION: "an instruction fetch",
    WarpState.IMC_MISS: "an immediate-constant cache miss",
    WarpState.GMMA: "a warpgroup matrix instruction",
    WarpState.DRAIN: "stores draining at exit",
    WarpState.SLEEPING: "nanosleep",
    WarpState.MISC: "another reason",
}


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One quantity: ncu metric name, label, unit for people, and the section that collects it.

    ``aliases`` are other metrics that carry the same quantity, tried in order.
    """

    name: str
    label: str
    unit: str
    section: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names that may hold the value, the preferred one first."""
        return (self.name, *self.aliases)


_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"

DURATION = MetricSpec("gpu__time_duration.sum", "Duration", "ns", "SpeedOfLight")
CLOCK = MetricSpec(
    "smsp__cycles_elapsed.avg.per_second",
    "SM Frequency",
    "Hz",
    "SpeedOfLight",
    ("gpc__cycles_elapsed.avg.per_second",),
)
ELAPSED_CYCLES = MetricSpec("smsp__cycles_elapsed.avg", "Elapsed Cycles Per Scheduler", "cycle", "WorkloadDistribution")
ACTIVE_CYCLES = MetricSpec("smsp__cycles_active.avg", "Active Cycles Per Scheduler", "cycle", "WorkloadDistribution")
INST_ISSUED = MetricSpec("smsp__inst_issued.sum", "Issued Instructions", "inst", "InstructionStats")
INST_ISSUED_AVG = MetricSpec(
    "smsp__inst_issued.avg", "Avg. Issued Instructions Per Scheduler", "inst", "InstructionStats"
)
INST_EXECUTED = MetricSpec(
    "smsp__inst_executed.sum", "Executed Instructions", "inst", "InstructionStats", ("inst_executed",)
)
ISSUE_RATE = MetricSpec(
    "smsp__issue_active.avg.per_cycle_active", "Issued Warp Per Scheduler", "inst/cycle", "SchedulerStats"
)
ACTIVE_WARPS = MetricSpec(
    "smsp__warps_active.avg.per_cycle_active", "Active Warps Per Scheduler", "warp", "SchedulerStats"
)
ELIGIBLE_WARPS = MetricSpec(
    "smsp__warps_eligible.avg.per_cycle_active", "Eligible Warps Per Scheduler", "warp", "SchedulerStats"
)
NO_ELIGIBLE = MetricSpec("smsp__issue_inst0.avg.pct_of_peak_sustained_active", "No Eligible", "%", "SchedulerStats")
WARP_LATENCY = MetricSpec(
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "Warp Cycles Per Issued Instruction",
    "cycle",
    "WarpStateStats",
)
THREADS_PER_INST = MetricSpec(
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Avg. Active Threads Per Warp",
    "thread",
    "WarpStateStats",
)
SM_THROUGHPUT = MetricSpec(f"sm__throughput{_ELAPSED}", "Compute (SM) Throughput", "%", "SpeedOfLight")
MEMORY_THROUGHPUT = MetricSpec(f"gpu__compute_memory_throughput{_ELAPSED}", "Memory Throughput", "%", "SpeedOfLight")
L1TEX_THROUGHPUT = MetricSpec(
    "l1tex__throughput.avg.pct_of_peak_sustained_active", "L1/TEX Cache Throughput", "%", "SpeedOfLight"
)
L2_THROUGHPUT = MetricSpec(f"lts__throughput{_ELAPSED}", "L2 Cache Throughput", "%", "SpeedOfLight")
DRAM_THROUGHPUT = MetricSpec(
    f"gpu__dram_throughput{_ELAPSED}",
    "DRAM Throughput",
    "%",
    "SpeedOfLight",
    (f"dram__throughput{_ELAPSED}",),
)
DRAM_READ = MetricSpec("dram__bytes_read.sum", "DRAM Bytes Read", "byte", "MemoryWorkloadAnalysis_Chart")
DRAM_WRITTEN = MetricSpec("dram__bytes_write.sum", "DRAM Bytes Written", "byte", "MemoryWorkloadAnalysis_Chart")
ACHIEVED_OCCUPANCY = MetricSpec(
    "sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy", "%", "Occupancy"
)
THEORETICAL_OCCUPANCY = MetricSpec("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy", "%", "Occupancy")
REGISTERS = MetricSpec("launch__registers_per_thread", "Registers Per Thread", "register/thread", "LaunchStats")
SHARED_PER_BLOCK = MetricSpec("launch__shared_mem_per_block", "Shared Memory Per Block", "byte/block", "LaunchStats")
WAVES = MetricSpec("launch__waves_per_multiprocessor", "Waves Per SM", "", "LaunchStats")
OCCUPANCY_LIMITS = {
    limiter: MetricSpec(f"launch__occupancy_limit_{key}", f"Block Limit {limiter.title()}", "block", "Occupancy")
    for limiter, key in (
        ("registers", "registers"),
        ("shared memory", "shared_mem"),
        ("warps", "warps"),
        ("blocks", "blocks"),
        ("barriers", "barriers"),
    )
}
OPCODES = MetricSpec(
    "sass__inst_executed_per_opcode_with_modifier_all",
    "Executed Instructions By Opcode",
    "inst",
    "InstructionStats",
    ("sass__inst_executed_per_opcode_with_modifier_selective", "sass__inst_executed_per_opcode"),
)
SPILLS = MetricSpec("sass__inst_executed_register_spilling", "Register Spilling Instructions", "inst", "SourceCounters")
SAMPLE_INTERVAL = MetricSpec("smsp__pcsamp_interval_cycles", "Sampling Interval", "cycle", "SourceCounters")
SAMPLE_DROPPED = MetricSpec("smsp__pcsamp_dropped_bytes", "Dropped Samples", "byte", "SourceCounters")
SAMPLE_BUFFER = MetricSpec("smsp__pcsamp_buffer_size_bytes", "Sampling Buffer Size", "byte", "SourceCounters")
PASSES = MetricSpec("profiler__replayer_passes", "Passes", "pass", "")

DEVICE_NAME = "device__attribute_display_name"
DEVICE_CC_MAJOR = "device__attribute_compute_capability_major"
DEVICE_CC_MINOR = "device__attribute_compute_capability_minor"
DEVICE_SM_COUNT = "device__attribute_multiprocessor_count"
DEVICE_SCHEDULERS = "device__attribute_num_schedulers_per_multiprocessor"
DEVICE_MAX_WARPS = "device__attribute_max_warps_per_scheduler"
DEVICE_ATTRIBUTES = (
    DEVICE_NAME, DEVICE_CC_MAJOR, DEVICE_CC_MINOR, DEVICE_SM_COUNT, DEVICE_SCHEDULERS, DEVICE_MAX_WARPS,
)  # fmt: skip
LAUNCH_DIMS = {kind: tuple(f"launch__{kind}_dim_{axis}" for axis in "xyz") for kind in ("grid", "block", "cluster")}

# Instances by absolute PC, and the base addresses of the kernel and of the functions it may call.
EXECUTED_PER_PC = "inst_executed"
THREADS_PER_PC = "thread_inst_executed"
FUNCTION_PCS = "launch__function_pcs"

STATE_SECTION = "WarpStateStats"
SAMPLE_SECTION = "SourceCounters"


def states_of(major: int, minor: int) -> tuple[WarpState, ...]:
    """Return the states that Nsight Compute defines for a compute capability.

    18 on sm_70 to sm_89, 19 on sm_90 (``gmma``), 17 from sm_100 on (neither ``gmma`` nor ``imc_miss``), after the
    architecture filters of the WarpStateStats section of Nsight Compute 2025.3 and the reports of each.
    """
    del minor
    without = set()
    if major != 9:
        without.add(WarpState.GMMA)
    if major > 9:
        without.add(WarpState.IMC_MISS)
    return tuple(s for s in WarpState if s not in without)


def metrics_for_accounting() -> frozenset[str]:
    """Return every metric name that closing the books reads, so that a reader can skip the other thousands."""
    specs = [v for v in globals().values() if isinstance(v, MetricSpec)]
    names = {n for spec in [*specs, *OCCUPANCY_LIMITS.values()] for n in spec.names}
    names.update(DEVICE_ATTRIBUTES)
    names.update(n for dims in LAUNCH_DIMS.values() for n in dims)
    for state in WarpState:
        names.update((state.counted_metric, state.sampled_metric, state.sampled_not_issued_metric))
    return frozenset(names)


def metrics_for_attribution() -> frozenset[str]:
    """Return the metrics that attribution reads, with their per-PC instances."""
    return metrics_for_accounting() | {EXECUTED_PER_PC, THREADS_PER_PC, FUNCTION_PCS}
