"""LaunchProfile -> Account: close the books of one launch (pure).

Per scheduler averages: T = I * L / W / (A/E) / f, and L = sum over the warp states. Where a counter is missing but
others determine it (W = L * r, A = I / r, E = T * f), it is derived and named as such; nothing else is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiler import vocabulary as v
from profiler.books import (
    Account,
    IssueSlots,
    MemoryRow,
    NotCollected,
    Occupancy,
    PerWork,
    Sampled,
    Samples,
    Tensor,
)
from profiler.findings import bound_of, findings_of
from profiler.model import LaunchProfile, Work
from profiler.opcodes import MemoryAccess, OpcodeClass, classify, memory_access, tensor_macs
from profiler.vocabulary import MetricSpec, WarpState

THROUGHPUTS: dict[str, MetricSpec] = {
    "sm": v.SM_THROUGHPUT,
    "memory": v.MEMORY_THROUGHPUT,
    "l1tex": v.L1TEX_THROUGHPUT,
    "l2": v.L2_THROUGHPUT,
    "dram": v.DRAM_THROUGHPUT,
}


def account(launch: LaunchProfile, work: Work | None = None) -> Account:
    """Close the books of a launch; ``work`` adds costs per GMAC and the padding waste. Never raises on gaps."""
    derived: dict[str, str] = {}
    n = launch.number
    duration = n(v.DURATION)
    clock = n(v.CLOCK)
    if clock is not None and n(v.CLOCK.name) is None:
        derived["clock_hz"] = v.CLOCK.aliases[0]
    issued = n(v.INST_ISSUED)
    per_scheduler = n(v.INST_ISSUED_AVG)
    if per_scheduler is None and issued is not None and launch.device.schedulers:
        per_scheduler = issued / launch.device.schedulers
        derived["issued_per_scheduler"] = f"{v.INST_ISSUED.name} / schedulers"
    rate, warps, latency = n(v.ISSUE_RATE), n(v.ACTIVE_WARPS), n(v.WARP_LATENCY)
    if warps is None and latency is not None and rate is not None:
        warps, derived["active_warps"] = latency * rate, "L * r"
    elif latency is None and warps is not None and rate:
        latency, derived["warp_cycles_per_issued_instruction"] = warps / rate, "W / r"
    elif rate is None and warps is not None and latency:
        rate, derived["issue_rate"] = warps / latency, "W / L"
    active = n(v.ACTIVE_CYCLES)
    if active is None and per_scheduler is not None and rate:
        active, derived["active_cycles"] = per_scheduler / rate, "I / r"
    elapsed = n(v.ELAPSED_CYCLES)
    if elapsed is None and duration is not None and clock is not None:
        elapsed, derived["elapsed_cycles"] = duration * 1e-9 * clock, "T * f"
    states = {s: value for s in WarpState if (value := n(s.counted_metric)) is not None}
    no_eligible = n(v.NO_ELIGIBLE)
    if no_eligible is None and rate is not None:
        no_eligible, derived["no_eligible_pct"] = 100.0 * (1.0 - rate), "1 - r"
    eligible = n(v.ELIGIBLE_WARPS)
    if eligible is None and rate is not None and WarpState.NOT_SELECTED in states:
        # An eligible warp is selected or it is not: no third state holds one.
        eligible = rate * (states.get(WarpState.SELECTED, 1.0) + states[WarpState.NOT_SELECTED])
        derived["eligible_warps"] = "r * (selected + not_selected)"
    samples = samples_of(launch)
    opcodes = _opcodes(launch)
    classes = _by_class(opcodes)
    tensor = _tensor(opcodes)
    executed = n(v.INST_EXECUTED)
    result = Account(
        launch=launch,
        duration_ns=duration,
        clock_hz=clock,
        elapsed_cycles=elapsed,
        active_cycles=active,
        issued_instructions=None if issued is None else round(issued),
        issued_per_scheduler=per_scheduler,
        executed_instructions=None if executed is None else round(executed),
        issue_rate=rate,
        active_warps=warps,
        eligible_warps=eligible,
        warp_cycles_per_issued_instruction=latency,
        states=states,
        residual_cycles=latency - sum(states.values()) if latency is not None and states else None,
        identity_residual_pct=_identity_residual(duration, per_scheduler, latency, warps, active, elapsed, clock),
        no_eligible_pct=no_eligible,
        samples=samples,
        issue_slots=_issue_slots(no_eligible, samples),
        throughputs_pct={name: n(spec) for name, spec in THROUGHPUTS.items()},
        threads_per_instruction=n(v.THREADS_PER_INST),
        occupancy=_occupancy(launch),
        opcodes=opcodes,
        opcode_classes=classes,
        memory=_memory(opcodes),
        tensor=tensor,
        spill_instructions=_integer(n(v.SPILLS)),
        passes=_integer(n(v.PASSES)),
        per_work=_per_work(work, launch, executed, active, duration, tensor) if work is not None else None,
        derived=derived,
        not_collected=(),
    )
    result = replace(result, not_collected=_not_collected(result))
    result = replace(result, bound=bound_of(result))
    return replace(result, findings=findings_of(result))


def _identity_residual(
    duration: float | None,
    issued: float | None,
    latency: float | None,
    warps: float | None,
    active: float | None,
    elapsed: float | None,
    clock: float | None,
) -> float | None:
    """Return 100 * (I * L / W / (A/E) / f / T - 1); None when a factor is missing."""
    if not (duration and issued and latency and warps and active and elapsed and clock):
        return None
    product = issued * latency / warps / (active / elapsed) / clock
    return 100.0 * (product / (duration * 1e-9) - 1.0)


def samples_of(launch: LaunchProfile) -> Samples | None:
    """Return the PC samples of a launch, None when none were collected."""
    states = {s: round(x) for s in WarpState if (x := launch.number(s.sampled_metric)) is not None}
    if not states:
        return None
    return Samples(
        states=states,
        not_issued={s: round(x) for s in WarpState if (x := launch.number(s.sampled_not_issued_metric)) is not None},
        interval_cycles=launch.number(v.SAMPLE_INTERVAL),
        dropped_bytes=_integer(launch.number(v.SAMPLE_DROPPED)),
        buffer_bytes=_integer(launch.number(v.SAMPLE_BUFFER)),
    )


def _issue_slots(no_eligible: float | None, samples: Samples | None) -> IssueSlots | None:
    """Take the lost slots from the counters and their split from the ``_not_issued`` samples.

    The share of ``_not_issued`` among all samples is not No Eligible when the issue rate is high, so it is not used.
    """
    if no_eligible is None:
        return None
    lost: dict[WarpState, Sampled] = {}
    if samples is not None and samples.total_not_issued:
        total = samples.total_not_issued
        ranked = sorted(samples.not_issued.items(), key=lambda item: -item[1])
        lost = {s: Sampled.share(count, total, no_eligible) for s, count in ranked if count}
    return IssueSlots(100.0 - no_eligible, no_eligible, lost)


def _occupancy(launch: LaunchProfile) -> Occupancy:
    limits = {name: round(x) for name, spec in v.OCCUPANCY_LIMITS.items() if (x := launch.number(spec)) is not None}
    # A limit of zero means "does not apply" (barriers on older architectures).
    binding = {name: blocks for name, blocks in limits.items() if blocks > 0}
    least = min(binding.values(), default=0)
    return Occupancy(
        achieved_pct=launch.number(v.ACHIEVED_OCCUPANCY),
        theoretical_pct=launch.number(v.THEORETICAL_OCCUPANCY),
        limits=limits,
        limiters=tuple(name for name, blocks in binding.items() if blocks == least),
        registers_per_thread=_integer(launch.number(v.REGISTERS)),
        shared_bytes_per_block=_integer(launch.number(v.SHARED_PER_BLOCK)),
        waves_per_sm=launch.number(v.WAVES),
    )


def _opcodes(launch: LaunchProfile) -> dict[str, int]:
    found = launch.instances(v.OPCODES)
    if found is None:
        return {}
    counts = {str(k): round(x) for k, x in found.by_id().items() if isinstance(x, int | float)}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _by_class(opcodes: Mapping[str, int]) -> dict[OpcodeClass, int]:
    totals: dict[OpcodeClass, int] = {}
    for opcode, count in opcodes.items():
        totals[classify(opcode)] = totals.get(classify(opcode), 0) + count
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _memory(opcodes: Mapping[str, int]) -> tuple[MemoryRow, ...]:
    totals: dict[MemoryAccess, int] = {}
    for opcode, count in opcodes.items():
        if (access := memory_access(opcode)) is not None:
            totals[access] = totals.get(access, 0) + count
    order = sorted(totals, key=lambda a: (a.space, a.kind, a.bits or 0))
    return tuple(MemoryRow(access, totals[access]) for access in order)


def _tensor(opcodes: Mapping[str, int]) -> Tensor | None:
    if not opcodes:
        return None
    used = {o: c for o, c in opcodes.items() if c and classify(o) is OpcodeClass.TENSOR}
    unknown = tuple(o for o in used if tensor_macs(o) is None)
    macs = None if unknown else sum(c * (tensor_macs(o) or 0) for o, c in used.items())
    return Tensor(sum(used.values()), macs, unknown)


def _per_work(
    work: Work,
    launch: LaunchProfile,
    executed: float | None,
    active: float | None,
    duration: float | None,
    tensor: Tensor | None,
) -> PerWork:
    read, written = launch.number(v.DRAM_READ), launch.number(v.DRAM_WRITTEN)
    moved = None if read is None or written is None else read + written
    done = tensor.macs if tensor is not None and tensor.macs else None
    return PerWork(
        work=work,
        instructions=None if executed is None else executed / work.gmac,
        cycles=None if active is None else active / work.gmac,
        us=None if duration is None else duration / 1e3 / work.gmac,
        bytes_per_mac=None if moved is None else moved / work.macs,
        padding_waste_pct=None if done is None else 100.0 * (done - work.macs) / done,
    )


def _not_collected(a: Account) -> tuple[NotCollected, ...]:
    """List the quantities that are missing, in the order in which a reader would miss them."""
    checks: list[tuple[object, MetricSpec]] = [
        (a.duration_ns, v.DURATION),
        (a.clock_hz, v.CLOCK),
        (a.issued_per_scheduler, v.INST_ISSUED),
        (a.executed_instructions, v.INST_EXECUTED),
        (a.active_cycles, v.ACTIVE_CYCLES),
        (a.elapsed_cycles, v.ELAPSED_CYCLES),
        (a.issue_rate, v.ISSUE_RATE),
        (a.active_warps, v.ACTIVE_WARPS),
        (a.eligible_warps, v.ELIGIBLE_WARPS),
        (a.warp_cycles_per_issued_instruction, v.WARP_LATENCY),
        (a.occupancy.achieved_pct, v.ACHIEVED_OCCUPANCY),
        (a.occupancy.theoretical_pct, v.THEORETICAL_OCCUPANCY),
        (a.opcodes or None, v.OPCODES),
        *((a.throughputs_pct[name], spec) for name, spec in THROUGHPUTS.items()),
    ]
    missing = [NotCollected(s.label, s.name, s.section) for value, s in checks if value is None]
    if not a.states:
        pattern = "smsp__average_warps_issue_stalled_*_per_issue_active.ratio"
        missing.append(NotCollected("Warp States", pattern, v.STATE_SECTION))
    if a.samples is None:
        missing.append(NotCollected("PC Samples", "smsp__pcsamp_warps_issue_stalled_*", v.SAMPLE_SECTION))
    return tuple(missing)


def _integer(x: float | None) -> int | None:
    return None if x is None else round(x)
