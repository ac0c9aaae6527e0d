"""Account -> what bounds the launch, and findings (pure).

Each finding names its rule and cites the numbers it rests on. Thresholds are constants here and nowhere else. Advice
about a stall is given only when the schedulers had empty slots to lose (No Eligible): a stall that other warps cover
costs nothing.
"""

from __future__ import annotations

import math

from profiler import vocabulary as v
from profiler.books import ENOUGH_SAMPLES, Account, Bound, Evidence, Finding, Sampled
from profiler.opcodes import OpcodeClass
from profiler.vocabulary import WarpState

# Nsight Compute's own SpeedOfLight rule calls a unit highly used from 80 % on, and poorly used under 60 %.
HIGH_THROUGHPUT_PCT = 80.0
LOW_THROUGHPUT_PCT = 60.0
# Below this share of empty issue slots, removing any one stall cannot win much.
NO_ELIGIBLE_MATTERS_PCT = 20.0
RESIDUAL_PCT = 1.0
NARROW_LOAD_SHARE = 0.25
TAIL_SHARE = 0.9
OCCUPANCY_GAP_PTS = 15.0
FULL_WARP = 32

_UNIT_NAMES = {"sm": "the SM's pipes", "l1tex": "L1/TEX", "l2": "L2", "dram": "DRAM"}


def bound_of(a: Account) -> Bound:
    """Say in one sentence what bounds the launch, from the strongest evidence collected."""
    blocks = math.prod(a.launch.grid) if a.launch.grid else None
    sms = a.launch.device.sm_count
    if a.launch.workload != "kernel":
        return Bound("unknown", f"{_top_unit_sentence(a)} A {a.launch.workload} mixes kernels: profile one of them.")
    if blocks is not None and sms is not None and blocks < sms:
        return Bound(
            "small",
            f"Too small to fill the GPU: {blocks} block{'s' * (blocks != 1)} on {sms} SMs leave {sms - blocks} idle."
            + _slots_clause(a),
        )
    busiest = _busiest_unit(a)
    if busiest is not None and busiest[1] >= HIGH_THROUGHPUT_PCT:
        unit, pct = busiest
        kind = "compute" if unit == "sm" else unit
        word = "Compute" if unit == "sm" else "Memory"
        return Bound(kind, f"{word} bound: {_UNIT_NAMES[unit]} ran at {pct:.0f} % of peak.{_slots_clause(a)}")
    if a.no_eligible_pct is None:
        return Bound("unknown", f"{_top_unit_sentence(a)} {_what_to_collect(a)}")
    if a.no_eligible_pct < NO_ELIGIBLE_MATTERS_PCT:
        return Bound(
            "issue",
            f"Issue bound: {100 - a.no_eligible_pct:.0f} of 100 issue slots issued; only fewer instructions help.",
        )
    if a.throughputs_pct.get("sm") is None:
        # Empty issue slots alone do not tell waiting from tensor cores that are at their limit.
        text = f"{_slots_clause(a).lstrip()} Whether a unit of the SM was at its limit was not collected"
        return Bound("unknown", f"{text} (--section SpeedOfLight).")
    return Bound("latency", f"Latency bound:{_slots_clause(a)}")


def _slots_clause(a: Account) -> str:
    """`` 63.0 of 100 issue slots issued, 37.0 were empty, 21.1 of them in long_scoreboard (waiting for ...)."""
    if a.no_eligible_pct is None:
        return ""
    text = f" {a.no_eligible_pct:.1f} of 100 issue slots were empty"
    state = a.top_state
    n = a.samples.total_not_issued if a.samples is not None else 0
    if state is None:
        if a.samples is not None:
            return f"{text}; {n} samples are too few to say what emptied them."
        return f"{text}; which stall emptied them was not collected (--section {v.STATE_SECTION})."
    slots = a.issue_slots
    if slots is not None and state in slots.lost and n >= ENOUGH_SAMPLES:
        return f"{text}, {slots.lost[state].value:.1f} of them in {state.value} ({state.meaning})."
    latency = a.warp_cycles_per_issued_instruction
    cycles = a.states.get(state) if a.states else a.sampled_states[state].value
    share = "" if not latency or cycles is None else f", {100 * cycles / latency:.0f} % of a warp's time"
    return f"{text}; the largest stall is {state.value} ({state.meaning}){share}."


def _busiest_unit(a: Account) -> tuple[str, float] | None:
    """Return (key of ``_UNIT_NAMES``, per cent of peak) of the busiest unit, None when none was collected."""
    units = {name: pct for name in _UNIT_NAMES if (pct := a.throughputs_pct.get(name)) is not None}
    return max(units.items(), key=lambda item: item[1]) if units else None


def _top_unit_sentence(a: Account) -> str:
    busiest = _busiest_unit(a)
    if busiest is None:
        return "What bounds it cannot be told from what was collected."
    unit, pct = busiest
    if pct < LOW_THROUGHPUT_PCT:
        return f"It waits: no unit is busy ({_UNIT_NAMES[unit]} most, {pct:.0f} %). For what was not collected."
    name = _UNIT_NAMES[unit]
    return f"{name[0].upper()}{name[1:]} ran at {pct:.0f} % of peak; what warps wait for was not collected."


def _what_to_collect(a: Account) -> str:
    """Name the sections, most telling first, that would answer the question."""
    wanted = ["SchedulerStats", v.STATE_SECTION, v.SAMPLE_SECTION]
    if all(x is None for x in a.throughputs_pct.values()):
        wanted.insert(0, "SpeedOfLight")
    missing = {m.section for m in a.not_collected}
    names = [f"--section {name}" for name in wanted if name in missing]
    return f"Collect it with: ncu {' '.join(names)}" if names else ""


def findings_of(a: Account) -> tuple[Finding, ...]:
    """Return the findings, levers first, then warnings about the numbers themselves."""
    found = [
        *_stall_lever(a), *_narrow_loads(a), *_spills(a), *_tail(a), *_imbalance(a), *_occupancy(a), *_divergence(a),
        *_padding(a), *_residuals(a), *_few_samples(a), *_dropped(a),
    ]  # fmt: skip
    order = {"lever": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda f: order[f.severity]))


def _stall_lever(a: Account) -> list[Finding]:
    slots, samples = a.issue_slots, a.samples
    if slots is None or not slots.lost or samples is None or samples.total_not_issued < ENOUGH_SAMPLES:
        return []
    if slots.lost_pct < NO_ELIGIBLE_MATTERS_PCT:
        return []
    state = next(iter(slots.lost))
    lost, ceiling = slots.lost[state], _stall_ceiling(a, state)
    evidence = [
        Evidence(v.NO_ELIGIBLE.name, slots.lost_pct, "%"),
        Evidence(state.sampled_not_issued_metric, samples.not_issued[state], "samples"),
    ]
    why = "its share of the warps' time" if ceiling.value < slots.lost_pct else "all the empty issue slots"
    error = f" ± {ceiling.standard_error:.1f}" if ceiling.standard_error else ""
    text = (
        f"With the same instructions, removing every {state.value} stall wins at most {ceiling.value:.1f}{error} % of "
        f"the active cycles: {why}."
    )
    unit, busy = _busiest_unit(a) or ("", 0.0)
    headroom = max(0.0, 100.0 - busy)
    if headroom < ceiling.value:
        # Empty slots that wait for a saturated unit cannot be won by hiding the wait.
        text = (
            f"{state.value} emptied {lost.value:.1f} ± {lost.standard_error:.1f} of 100 issue slots, but "
            f"{_UNIT_NAMES[unit]} already ran at {busy:.0f} % of peak: without less work for it, at most "
            f"{headroom:.0f} % can be won."
        )
        evidence.append(Evidence(f"{unit} throughput", busy, "%"))
    return [Finding("stall-ceiling", "lever", text, tuple(evidence))]


def _stall_ceiling(a: Account, state: WarpState) -> Sampled:
    """Return the most that removing a stall could win, in per cent of the active cycles.

    Active cycles are I * L / W, so they fall by the state's share of L, and never below one for each instruction. The
    slots that were lost in the state are less: freeing one of several waiting warps may fill a slot.
    """
    empty = a.no_eligible_pct if a.no_eligible_pct is not None else 100.0
    latency, cycles = a.warp_cycles_per_issued_instruction, a.states.get(state)
    if cycles is not None and latency:
        share = Sampled(100.0 * cycles / latency, 0.0)
    else:
        share = (a.samples.share(state) if a.samples is not None else None) or Sampled(100.0, 0.0)
    return share if share.value < empty else Sampled(empty, 0.0)


def _narrow_loads(a: Account) -> list[Finding]:
    """Byte and half-word global loads: one 16-byte load does the work of 16 or 8 of them."""
    loads = [m for m in a.memory if m.access.space == "global" and m.access.kind == "load"]
    total = sum(m.instructions for m in loads)
    narrow = sum(m.instructions for m in loads if m.access.bits is not None and m.access.bits < 32)
    if not total or narrow < NARROW_LOAD_SHARE * total:
        return []
    text = (
        f"{narrow:,} of {total:,} global load instructions move 8 or 16 bits a thread; "
        "one 128-bit load replaces 16 or 8."
    )
    evidence = [Evidence(v.OPCODES.name, narrow, "inst")]
    share = a.states.get(WarpState.LONG_SCOREBOARD)
    if share is not None and a.warp_cycles_per_issued_instruction:
        text += f" long_scoreboard is {share:.1f} of {a.warp_cycles_per_issued_instruction:.1f} cy/inst."
        evidence.append(Evidence(WarpState.LONG_SCOREBOARD.counted_metric, share, "cycle"))
    return [Finding("narrow-loads", "lever", text, tuple(evidence))]


def _spills(a: Account) -> list[Finding]:
    local = a.opcode_classes.get(OpcodeClass.LOCAL, 0)
    if a.spill_instructions:
        return [
            Finding(
                "spills", "lever" if a.spill_instructions > 0.01 * (a.executed_instructions or 0) else "note",
                f"{a.spill_instructions:,} instructions spill registers to local memory.",
                (Evidence(v.SPILLS.name, a.spill_instructions, "inst"),),
            )
        ]  # fmt: skip
    if local and a.spill_instructions is None:
        return [
            Finding(
                "local-memory", "note",
                f"{local:,} instructions use local memory: spilled registers, or an array indexed at run time.",
                (Evidence(v.OPCODES.name, local, "inst"),),
            )
        ]  # fmt: skip
    return []


def _tail(a: Account) -> list[Finding]:
    waves = a.occupancy.waves_per_sm
    if waves is None or waves <= 1.0 or waves > 10.0:
        return []
    used = waves / math.ceil(waves)
    if used >= TAIL_SHARE:
        return []
    return [
        Finding(
            "tail", "lever",
            f"{waves:.2f} waves of blocks run as {math.ceil(waves)}: the last one leaves "
            f"{100 * (1 - used):.0f} % of the block slots empty.",
            (Evidence(v.WAVES.name, waves, ""),),
        )
    ]  # fmt: skip


def _imbalance(a: Account) -> list[Finding]:
    share = a.active_share
    if share is None or share >= TAIL_SHARE:
        return []
    return [
        Finding(
            "active-share", "lever",
            f"A scheduler had warps in {100 * share:.0f} % of the elapsed cycles; "
            "the rest is launch, tail or imbalance.",
            (Evidence("A/E", 100 * share, "%"),),
        )
    ]  # fmt: skip


def _occupancy(a: Account) -> list[Finding]:
    o = a.occupancy
    if o.achieved_pct is None or o.theoretical_pct is None or o.theoretical_pct - o.achieved_pct < OCCUPANCY_GAP_PTS:
        return []
    return [
        Finding(
            "occupancy-gap", "note",
            f"Achieved occupancy {o.achieved_pct:.0f} % of a theoretical {o.theoretical_pct:.0f} %: "
            "blocks end early, or there are too few.",
            (
                Evidence(v.ACHIEVED_OCCUPANCY.name, o.achieved_pct, "%"),
                Evidence(v.THEORETICAL_OCCUPANCY.name, o.theoretical_pct, "%"),
            ),
        )
    ]  # fmt: skip


def _divergence(a: Account) -> list[Finding]:
    threads = a.threads_per_instruction
    if threads is None or threads >= 0.75 * FULL_WARP:
        return []
    return [
        Finding(
            "divergence", "lever", f"Only {threads:.1f} of 32 threads are active in an average instruction.",
            (Evidence(v.THREADS_PER_INST.name, threads, "thread"),),
        )
    ]  # fmt: skip


def _padding(a: Account) -> list[Finding]:
    waste = a.per_work.padding_waste_pct if a.per_work is not None else None
    if waste is None or -RESIDUAL_PCT <= waste < 5.0:
        return []
    if waste < 0:
        text = f"The tensor cores executed {-waste:.1f} % fewer MACs than were declared: is the declared work right?"
        return [Finding("work-mismatch", "warning", text, (Evidence("padding waste", waste, "%"),))]
    text = f"{waste:.1f} % of the executed MACs are padding of the tiles."
    return [Finding("padding", "lever", text, (Evidence("padding waste", waste, "%"),))]


def _residuals(a: Account) -> list[Finding]:
    found = []
    if a.residual_pct is not None and abs(a.residual_pct) > RESIDUAL_PCT:
        why = "counters of different passes disagree" + (
            ", as they do on launches of a few microseconds"
            if a.duration_ns is not None and a.duration_ns < 20e3
            else ""
        )
        found.append(
            Finding(
                "states-residual", "warning",
                f"The warp states sum to {100 - a.residual_pct:.1f} % of Warp Cycles Per Issued Instruction: {why}.",
                (Evidence("residual", a.residual_pct, "%"),),
            )
        )  # fmt: skip
    if a.identity_residual_pct is not None and abs(a.identity_residual_pct) > RESIDUAL_PCT:
        found.append(
            Finding(
                "identity-residual", "warning",
                f"The time identity closes to {a.identity_residual_pct:+.1f} %: counters of different passes disagree.",
                (Evidence("identity residual", a.identity_residual_pct, "%"),),
            )
        )  # fmt: skip
    return found


def _few_samples(a: Account) -> list[Finding]:
    if a.samples is None or a.samples.total_not_issued >= ENOUGH_SAMPLES:
        return []
    n, total = a.samples.total_not_issued, a.samples.total
    neither = f", and {total} in all to split a warp's time" if total < ENOUGH_SAMPLES and not a.states else ""
    return [
        Finding(
            "few-samples", "warning",
            f"{n} samples in empty slots are too few to split them by state{neither}; sample more often "
            "(ncu --warp-sampling-interval 0) or profile a longer launch.",
            (Evidence("not-issued samples", n, "samples"),),
        )
    ]  # fmt: skip


def _dropped(a: Account) -> list[Finding]:
    if a.samples is None:
        return []
    lean = "shares may lean to the launch's start."
    if dropped := a.samples.dropped_bytes:
        text = f"{dropped:,} bytes of samples were dropped, the buffer was full: {lean}"
        return [Finding("dropped-samples", "warning", text, (Evidence(v.SAMPLE_DROPPED.name, dropped, "byte"),))]
    if a.samples.buffer_full and a.samples.buffer_bytes is not None:
        text = f"{a.samples.total:,} samples fill the buffer; what ran after them was not sampled: {lean}"
        evidence = Evidence(v.SAMPLE_BUFFER.name, a.samples.buffer_bytes, "byte")
        return [Finding("dropped-samples", "warning", text, (evidence,))]
    return []
