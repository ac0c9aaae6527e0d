"""Two accounts -> an additive explanation of the change in time (pure).

T = I * L / W / (A/E) / f, so ln(T2/T1) is a sum, and logarithmic-mean weights (lmdi.py) turn it into nanoseconds:
instructions (by opcode class), warp cycles per issued instruction (by warp state), active warps, active share and
clock. What a missing counter would explain stays in a named remainder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profiler import vocabulary as v
from profiler.accounting import account
from profiler.books import Account, NotCollected
from profiler.by_region import RegionExplanation
from profiler.errors import NotComparableError, UsageError
from profiler.lmdi import component_effects, factor_effect
from profiler.model import Conditions, LaunchProfile, Report
from profiler.vocabulary import MetricSpec

if TYPE_CHECKING:
    import pandas as pd

# A single profiled launch each: smaller changes are within what repeated captures of one binary differ by.
SMALL_CHANGE_PCT = 2.0
CLOCK_CHANGE_PCT = 2.0
WORK_CHANGE = 0.01

INSTRUCTIONS, LATENCY, WARPS, ACTIVE, CLOCK = (
    "instructions",
    "cy/inst",
    "active warps",
    "active share",
    "clock",
)
RATE = "cycles per issue"


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the change: ``delta_ns`` (per GMAC under per-work), ``share_pct`` of the whole change.

    ``before`` and ``after`` are the factor's own values in ``unit``; ``detail`` is the opcode class or warp state, or
    empty for a factor that has no parts.
    """

    factor: str
    detail: str
    delta_ns: float
    share_pct: float | None
    before: float | None
    after: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class Issue:
    """Why two launches must not (refusal) or should only carefully (caution) be compared."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``terms`` are the leaves; with ``remainder_ns`` they add up to ``delta_ns`` exactly.

    ``factors`` are the sums of the terms by factor. ``not_collected`` names the factors inside the remainder. Times
    are ns, or ns per GMAC when ``per_work``. With refusals (and no force) there are no terms. ``by_region`` is None
    unless it was asked for (align.py).
    """

    before: Account
    after: Account
    per_work: bool
    before_ns: float | None
    after_ns: float | None
    factors: tuple[Term, ...]
    terms: tuple[Term, ...]
    remainder_ns: float | None
    not_collected: tuple[NotCollected, ...]
    refusals: tuple[Issue, ...]
    cautions: tuple[Issue, ...]
    sentence: str = ""
    by_region: RegionExplanation | None = None

    @property
    def states_sampled(self) -> bool:
        """Whether cy/inst is split by the samples of both sides, because not both counted the warp states."""
        return not (self.before.states and self.after.states) and any(
            t.detail for t in self.terms if t.factor == LATENCY
        )

    @property
    def delta_ns(self) -> float | None:
        """Time after minus time before."""
        return None if self.before_ns is None or self.after_ns is None else self.after_ns - self.before_ns

    @property
    def delta_pct(self) -> float | None:
        """Change in per cent of before."""
        return None if self.delta_ns is None or not self.before_ns else 100.0 * self.delta_ns / self.before_ns

    def to_frame(self) -> pd.DataFrame:
        """Return the terms and the remainder as a DataFrame with the fields of Term as columns."""
        import pandas as pd

        columns = list(Term.__dataclass_fields__)
        rows = [{c: getattr(term, c) for c in columns} for term in self.terms]
        if self.remainder_ns is not None:
            share = _share(self.remainder_ns, self.delta_ns)
            rows.append({"factor": "remainder", "detail": "", "delta_ns": self.remainder_ns, "share_pct": share})
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(self.sentence)}</p>{self.to_frame().to_html(index=False, na_rep='')}"


def compare(
    before: Account | LaunchProfile | Report,
    after: Account | LaunchProfile | Report,
    *,
    per_work: bool = False,
    force: bool = False,
) -> Comparison:
    """Explain the change from ``before`` to ``after``; a Report must hold one launch.

    ``per_work`` compares times per declared GMAC. Raises NotComparableError when the captures must not be compared,
    unless ``force``; captures from Reports are also checked for their conditions.
    """
    pair = _account(before), _account(after)
    conditions = (
        (before.conditions, after.conditions) if isinstance(before, Report) and isinstance(after, Report) else None
    )
    result = explain(*pair, conditions=conditions, per_work=per_work, force=force)
    if result.refusals and not force:
        raise NotComparableError("; ".join(r.text for r in result.refusals))
    return result


def _account(x: Account | LaunchProfile | Report) -> Account:
    if isinstance(x, Report):
        if len(x.launches) != 1:
            raise UsageError(f"{x.path} holds {len(x.launches)} launches: give compare one of report.launches")
        x = x.launches[0]
    return x if isinstance(x, Account) else account(x)


def explain(
    before: Account,
    after: Account,
    *,
    conditions: tuple[Conditions, Conditions] | None = None,
    per_work: bool = False,
    force: bool = False,
) -> Comparison:
    """Check and explain; refusals are returned, not raised (and leave ``terms`` empty unless ``force``)."""
    refusals = _refusals(before, after, conditions, per_work)
    scale = _scales(before, after, per_work)
    times = tuple(
        None if t is None else t / s for t, s in zip((before.duration_ns, after.duration_ns), scale, strict=True)
    )
    factors: list[Term] = []
    terms: list[Term] = []
    missing: list[NotCollected] = []
    remainder: float | None = None
    if times[0] and times[1] and (force or not refusals):
        total = (times[0], times[1])
        factors, terms, missing = _decompose(total, before, after, scale)
        remainder = (total[1] - total[0]) - sum(t.delta_ns for t in factors)
    result = Comparison(
        before=before,
        after=after,
        per_work=per_work,
        before_ns=times[0],
        after_ns=times[1],
        factors=tuple(factors),
        terms=tuple(terms),
        remainder_ns=remainder,
        not_collected=tuple(missing),
        refusals=tuple(refusals),
        cautions=tuple(_cautions(before, after, conditions)),
    )
    return with_parts(result, {})


def with_parts(c: Comparison, of_which: Mapping[str, str]) -> Comparison:
    """Return the comparison with its sentence, which adds the words of ``of_which`` to the factors it names."""
    return replace(c, sentence=_sentence(c, of_which))


def largest(comparisons: Sequence[Comparison], limit: int | None) -> list[Comparison]:
    """Return what is shown in detail: a lone comparison, or of several the ``limit`` (1) that changed most."""
    return sorted(comparisons, key=lambda c: -abs(c.delta_ns or 0.0))[: limit or 1]


def _scales(before: Account, after: Account, per_work: bool) -> tuple[float, float]:
    if not per_work:
        return 1.0, 1.0
    if before.per_work is None or after.per_work is None:
        raise UsageError("--per-work needs the work of both launches: --macs or --gemm, twice if they differ")
    return before.per_work.work.gmac, after.per_work.work.gmac


def _decompose(
    total: tuple[float, float], b: Account, a: Account, scale: tuple[float, float]
) -> tuple[list[Term], list[Term], list[NotCollected]]:
    delta = total[1] - total[0]
    factors: list[Term] = []
    leaves: list[Term] = []
    missing: list[NotCollected] = []

    def add(
        name: str,
        values: tuple[float | None, float | None],
        unit: str,
        spec: MetricSpec,
        parts: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
        inverse: bool = False,
    ) -> None:
        before, after = values
        if not before or not after or before < 0 or after < 0:
            missing.append(NotCollected(name, spec.name, spec.section))
            return
        as_factor = (1 / before, 1 / after) if inverse else (before, after)
        effect = factor_effect(total, as_factor)
        factors.append(Term(name, "", effect, _share(effect, delta), before, after, unit))
        if parts is None:
            leaves.append(factors[-1])
            return
        for detail, part in component_effects(total, *parts, factor=(before, after)).items():
            first, second = parts[0].get(detail, 0.0), parts[1].get(detail, 0.0)
            leaves.append(Term(name, detail, part, _share(part, delta), first, second, unit))

    issued = tuple(
        None if x.issued_per_scheduler is None else x.issued_per_scheduler / s
        for x, s in zip((b, a), scale, strict=True)
    )
    add(INSTRUCTIONS, (issued[0], issued[1]), "inst/scheduler", v.INST_ISSUED, _instruction_parts(b, a, scale))
    latency = (b.warp_cycles_per_issued_instruction, a.warp_cycles_per_issued_instruction)
    if None in latency and b.issue_rate and a.issue_rate:
        # L and W are not known one by one, but their ratio is: cycles per issued instruction, 1 / r.
        add(RATE, (1 / b.issue_rate, 1 / a.issue_rate), "cycle", v.ISSUE_RATE)
        missing += [NotCollected(f"{LATENCY} and {WARPS} apart", v.WARP_LATENCY.name, v.WARP_LATENCY.section)]
    else:
        add(LATENCY, latency, "cycle", v.WARP_LATENCY, _state_parts(b, a))
        add(WARPS, (b.active_warps, a.active_warps), "warp", v.ACTIVE_WARPS, inverse=True)
    add(ACTIVE, (b.active_share, a.active_share), "", v.ACTIVE_CYCLES, inverse=True)
    add(CLOCK, (b.clock_hz, a.clock_hz), "Hz", v.CLOCK, inverse=True)
    return factors, leaves, missing


def _instruction_parts(
    b: Account, a: Account, scale: tuple[float, float]
) -> tuple[Mapping[str, float], Mapping[str, float]] | None:
    """Executed instructions by opcode class, per scheduler and unit of work, plus what was issued again.

    None unless both sides have per-opcode counts: half a split would pass the other side's total off as change.
    """
    if not (b.opcode_classes and a.opcode_classes):
        return None
    parts = []
    for x, s in zip((b, a), scale, strict=True):
        if not x.issued_instructions or not x.issued_per_scheduler:
            return None
        schedulers = x.issued_instructions / x.issued_per_scheduler
        counts = {c.value: n / schedulers / s for c, n in x.opcode_classes.items()}
        counts["issued again"] = x.issued_per_scheduler / s - sum(counts.values())
        parts.append(counts)
    return parts[0], parts[1]


def _state_parts(b: Account, a: Account) -> tuple[Mapping[str, float], Mapping[str, float]] | None:
    """Cycles by warp state plus the residual of the sum; from the samples where a side has not counted them.

    Both sides on one basis: a state's change must not be the difference of two methods. None without either.
    """
    if not (b.states and a.states):
        if not (b.sampled_states and a.sampled_states):
            return None
        first, second = ({s.value: x.value for s, x in side.sampled_states.items()} for side in (b, a))
        return first, second
    before, after = ({s.value: c for s, c in x.states.items()} | {"residual": x.residual_cycles or 0.0} for x in (b, a))
    return before, after


def _share(part: float, delta: float | None) -> float | None:
    return 100.0 * part / delta if delta else None


def _refusals(b: Account, a: Account, conditions: tuple[Conditions, Conditions] | None, per_work: bool) -> list[Issue]:
    found = []
    devices = b.launch.device, a.launch.device
    if devices[0].name != devices[1].name or devices[0].cc != devices[1].cc:
        names = [f"{d.name} (cc {d.cc})" for d in devices]
        found.append(Issue("device", f"different devices: {names[0]} against {names[1]}"))
    if conditions is not None:
        for name, label in (
            ("clock_control", "clock control"),
            ("cache_control", "cache control"),
            ("replay_mode", "replay mode"),
        ):
            x, y = getattr(conditions[0], name).value, getattr(conditions[1], name).value
            if x is not None and y is not None and x != y:
                found.append(Issue(name, f"different {label}: {x} against {y}"))
    if b.launch.workload != a.launch.workload:
        found.append(Issue("workload", f"a {b.launch.workload} against a {a.launch.workload}"))
    if not per_work and b.per_work and a.per_work and b.per_work.work.macs != a.per_work.work.macs:
        text = f"different work: {b.per_work.work.gmac:.4g} against {a.per_work.work.gmac:.4g} GMAC; add --per-work"
        found.append(Issue("work", text))
    return found


def _cautions(b: Account, a: Account, conditions: tuple[Conditions, Conditions] | None) -> list[Issue]:
    found = []
    if conditions is not None:
        for name, label in (
            ("clock_control", "clock control"),
            ("cache_control", "cache control"),
            ("replay_mode", "replay mode"),
        ):
            sides = [
                side for side, c in zip(("before", "after"), conditions, strict=True) if getattr(c, name).value is None
            ]
            if sides:
                found.append(Issue(name, f"{label} is not recorded in {' and '.join(sides)}"))
        for name, label in (("ncu_version", "ncu"), ("driver_version", "driver")):
            x, y = getattr(conditions[0], name), getattr(conditions[1], name)
            if x and y and x != y:
                found.append(Issue(name, f"different {label} versions: {x} against {y}"))
    if not (b.states and a.states) and b.sampled_states and a.sampled_states:
        counts = [f"{x.samples.total:,}" for x in (b, a) if x.samples is not None]
        text = f"cy/inst is split by {' and '.join(counts)} samples: the warp states were not counted on both sides"
        found.append(Issue("sampled-states", text))
    one_sided = set(b.launch.sections) ^ set(a.launch.sections)
    if one_sided:
        found.append(Issue("sections", f"sections collected on one side only: {', '.join(sorted(one_sided))}"))
    if b.clock_hz and a.clock_hz and abs(a.clock_hz / b.clock_hz - 1) * 100 > CLOCK_CHANGE_PCT:
        text = f"the SM clock differs: {b.clock_hz / 1e9:.3f} against {a.clock_hz / 1e9:.3f} GHz"
        found.append(Issue("clock", text))
    done = [x.tensor.macs if x.tensor is not None else None for x in (b, a)]
    if done[0] and done[1] and abs(done[1] / done[0] - 1) > WORK_CHANGE and b.per_work is None:
        text = f"the tensor cores executed {done[0] / 1e9:.4g} against {done[1] / 1e9:.4g} GMAC: is it the same work?"
        found.append(Issue("executed-work", text))
    if b.duration_ns and a.duration_ns and abs(a.duration_ns / b.duration_ns - 1) * 100 < SMALL_CHANGE_PCT:
        text = (
            f"a change under {SMALL_CHANGE_PCT:.0f} % needs repeated timings: one profiled launch each cannot decide it"
        )
        found.append(Issue("small-change", text))
    return found


def _sentence(c: Comparison, of_which: Mapping[str, str]) -> str:
    """Say what the change did and why, in one or two sentences."""
    if c.refusals and not c.factors:
        return "Not comparable: " + "; ".join(r.text for r in c.refusals) + "."
    if c.before_ns is None or c.after_ns is None or c.delta_pct is None:
        return "The duration was not collected on both sides (ncu --section SpeedOfLight): there is nothing to explain."
    times = c.after_ns / c.before_ns
    speed = f"{1 / times:.2f}x faster" if times < 1 else f"{times:.2f}x slower" if times > 1 else "no change"
    text = f"{c.delta_pct:+.1f} %, {speed}"
    if not c.factors or not c.delta_ns:
        return text + "."
    ranked = sorted(c.factors, key=lambda t: -abs(t.delta_ns))
    main = ranked[0]
    parts = [f": {_phrase(main, of_which)} ({_pct(main.share_pct)} of the change"]
    detail = max(
        (t for t in c.terms if t.factor == main.factor and t.detail),
        key=lambda t: abs(t.delta_ns),
        default=None,
    )
    if detail is not None:
        most = abs(detail.delta_ns) >= abs(main.delta_ns) / 2
        parts.append(f", {'most of it' if most else 'the largest part'} {detail.detail}")
    parts.append(")")
    others = [t for t in ranked[1:] if abs(t.share_pct or 0.0) >= 5.0]
    if others:
        parts.append("; " + "; ".join(f"{_phrase(t, of_which)} ({_pct(t.share_pct)})" for t in others[:2]))
    return text + "".join(parts) + "."


def _pct(x: float | None) -> str:
    return "n/a" if x is None else f"{x:.0f} %"


def _phrase(t: Term, of_which: Mapping[str, str]) -> str:
    assert t.before is not None
    assert t.after is not None
    change = 100.0 * (t.after / t.before - 1.0)
    words = {
        INSTRUCTIONS: ("fewer instructions", "more instructions"),
        LATENCY: ("less waiting per instruction", "more waiting per instruction"),
        RATE: ("fewer cycles per issue", "more cycles per issue"),
        WARPS: ("fewer active warps", "more active warps"),
        ACTIVE: ("a smaller active share", "a larger active share"),
        CLOCK: ("a lower clock", "a higher clock"),
    }[t.factor]
    inside = f", {of_which[t.factor]}" if t.factor in of_which else ""
    return f"{words[change > 0]} ({change:+.1f} %{inside})"
