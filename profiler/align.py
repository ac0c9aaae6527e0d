"""Two attributed builds -> the change by region, by producer and by instruction (pure).

Addresses mean nothing across builds, so instructions are matched by region and by normalised SASS. The split of the
times needs no matching: it follows the formula of compare.py one level down, dT_part = Lm(T1, T2) / Lm(X1, X2) *
(x_part2 - x_part1) (lmdi.py), where a factor X is the sum of its parts: instructions by region (counted), and each warp
state's cycles by the region of what it waits for (counted cycles times the sampled share).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import TypeVar

from profiler import vocabulary as v
from profiler.blame import OUTSIDE, UNMARKED, Hot, Place
from profiler.books import Account, Sampled
from profiler.by_region import (
    ISSUED_AGAIN,
    NO_PRODUCER,
    NOT_SAMPLED,
    Absent,
    Alignment,
    Kind,
    Pair,
    ProducerTerm,
    RegionExplanation,
    RegionTerm,
)
from profiler.code import Instruction
from profiler.compare import INSTRUCTIONS, LATENCY, Comparison, Term, with_parts
from profiler.lmdi import component_effects, log_mean
from profiler.opcodes import classify
from profiler.vocabulary import EXECUTED_PER_PC, WarpState

# Matching in order takes time that grows with the square of a region's size; larger regions are matched by counts.
LARGEST_IN_ORDER = 4000
# Constants up to a byte (shifts, masks, truth tables of LOP3) tell instructions apart; larger ones are data or layout.
SMALL = 0xFF
# A region is named in the sentence when it explains at least this part of its factor.
WORTH_NAMING = 0.3

_LABEL = re.compile(r"`\([^)]*\)|\S*@(?:lo|hi|srel)\S*(?: \+ \S+)*")
_NAMED = re.compile(r"\b(UR|UP|R|P|B|SB)\d+\b")
_DISPLACEMENT = re.compile(r"(?<!c\[)\+?-?0x[0-9a-f]+(?=\])")
_NUMBER = re.compile(r"(?<![\w.])-?(?:0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?![\w.])", re.IGNORECASE)

Key = TypeVar("Key", bound=Hashable)


def align(before: Hot, after: Hot) -> Alignment:
    """Match the instructions of two builds, region by region: first in order, then those that moved within it."""
    sides = _by_region(before), _by_region(after)
    pairs: list[Pair] = []
    for region in [*sides[0], *(r for r in sides[1] if r not in sides[0])]:
        pairs += _match(region, sides[0].get(region, []), sides[1].get(region, []), before, after)
    return Alignment(tuple(pairs), _kinds(pairs))


def normalised(i: Instruction) -> str:
    """Return an instruction's text without what a mere recompilation changes.

    Opcode with modifiers and the kinds of the operands stay; register numbers, displacements and constant-bank offsets,
    branch targets and constants above one byte go.
    """
    return _normalised(i.text)


@cache
def _normalised(text: str) -> str:
    text = _LABEL.sub("label", text)
    text = _NAMED.sub(r"\1", text)
    text = _DISPLACEMENT.sub("", text).replace("[]", "[#]")
    return _NUMBER.sub(lambda found: found[0] if _is_small(found[0]) else "#", text)


def _is_small(number: str) -> bool:
    if "0x" in number.lower():
        return abs(int(number, 16)) <= SMALL
    return len(number) <= 4 and abs(float(number)) <= SMALL


def _by_region(hot: Hot) -> dict[str, list[Place]]:
    """Return the instructions by region, in the order of the code."""
    found: dict[str, list[Place]] = defaultdict(list)
    for function in hot.code.functions.values():
        for i in function.instructions:
            region = hot.region_of[function.name, i.offset]
            found[region].append(Place(function.name, i, region))
    return found


def _match(region: str, b: list[Place], a: list[Place], before: Hot, after: Hot) -> Iterable[Pair]:
    left, right = [normalised(p.instruction) for p in b], [normalised(p.instruction) for p in a]
    partner: dict[int, tuple[int, bool]] = {}
    if max(len(b), len(a)) <= LARGEST_IN_ORDER:
        for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
            partner |= {block.a + n: (block.b + n, False) for n in range(block.size)}
    taken = {n for n, _ in partner.values()}
    free: dict[str, list[int]] = defaultdict(list)
    for n in reversed(range(len(a))):
        if n not in taken:
            free[right[n]].append(n)
    for n, text in enumerate(left):
        if n not in partner and free[text]:
            partner[n] = (free[text].pop(), True)
    for n, place in enumerate(b):
        other, moved = partner.get(n, (None, False))
        if other is None:
            yield Pair(region, place, None, _executed(before, place), _executed(after, None))
        else:
            counts = _executed(before, place), _executed(after, a[other])
            yield Pair(region, place, a[other], *counts, moved)
    taken = {n for n, _ in partner.values()}
    for n, place in enumerate(a):
        if n not in taken:
            yield Pair(region, None, place, _executed(before, None), _executed(after, place))


def _executed(hot: Hot, place: Place | None) -> int | None:
    if not hot.executed:
        return None
    return 0 if place is None else hot.executed.get((place.function, place.instruction.offset), 0)


def _kinds(pairs: Iterable[Pair]) -> tuple[Kind, ...]:
    """Sum the pairs by region and normalised text, without those whose executed count is the same."""
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for p in pairs:
        place = p.after or p.before
        if p.change is not None and place is not None:
            groups[p.region, normalised(place.instruction)].append(p)
    kinds = [
        Kind(
            region,
            text,
            max(members, key=lambda p: max(p.executed_before or 0, p.executed_after or 0)).sass,
            sum(p.before is not None for p in members),
            sum(p.after is not None for p in members),
            sum(p.executed_before or 0 for p in members),
            sum(p.executed_after or 0 for p in members),
        )
        for (region, text), members in groups.items()
    ]
    return tuple(sorted((k for k in kinds if k.change), key=lambda k: (-abs(k.change), k.region, k.sass)))


def explain_by_region(comparison: Comparison, before: Hot, after: Hot) -> RegionExplanation:
    """Split the terms of a comparison over the regions of its two launches, attributed as ``before`` and ``after``.

    A split for which one side lacks the samples, the counts or the code is empty, and named in ``absent``.
    """
    absent: list[Absent] = []
    hots = before, after
    # Missing samples are named with the split that needs them.
    problems = [
        f"{side}: {p}"
        for side, hot in zip(("before", "after"), hots, strict=True)
        for p in hot.problems
        if not p.startswith("no PC samples")
    ]
    sources = before.region_source, after.region_source
    if sources[0] != sources[1]:
        problems.append(f"regions come from {sources[0]} before and from {sources[1]} after")
    instructions = _instructions(comparison, hots, absent)
    by_region, by_kind = _producers(comparison, hots, absent)
    return RegionExplanation(
        alignment=align(before, after),
        instructions=instructions,
        producers=by_region,
        producer_kinds=by_kind,
        region_sources=sources,
        absent=tuple(absent),
        problems=tuple(problems),
    )


def with_regions(comparison: Comparison, before: Hot, after: Hot) -> Comparison:
    """Return the comparison with its explanation by region, which the sentence then names."""
    found = explain_by_region(comparison, before, after)
    return with_parts(replace(comparison, by_region=found), _of_which(comparison, found))


def _instructions(c: Comparison, hots: tuple[Hot, Hot], absent: list[Absent]) -> tuple[RegionTerm, ...]:
    factor = next((t for t in c.factors if t.factor == INSTRUCTIONS), None)
    if factor is None or c.before_ns is None or c.after_ns is None:
        absent.append(Absent("instructions by region", "the comparison has no term of instructions to split"))
        return ()
    missing = [*_missing(hots, EXECUTED_PER_PC, bool(hots[0].executed), bool(hots[1].executed))]
    accounts = c.before, c.after
    for side, account in zip(("before", "after"), accounts, strict=True):
        if not account.issued_instructions:
            missing.append(f"{side}: no {v.INST_ISSUED.name} (ncu --section {v.INST_ISSUED.section})")
    if missing:
        absent.append(Absent("instructions by region", "; ".join(missing)))
        return ()
    counts = [_counts(hot, account) for hot, account in zip(hots, accounts, strict=True)]
    sums = factor.before or 0.0, factor.after or 0.0
    # Instructions per scheduler, and per unit of work where that is compared: the factor's own unit.
    parts = [
        {region: total * n / (account.issued_instructions or 1) for region, n in count.items()}
        for total, count, account in zip(sums, counts, accounts, strict=True)
    ]
    effects = component_effects((c.before_ns, c.after_ns), parts[0], parts[1], factor=sums)
    terms = [
        RegionTerm(region, counts[0].get(region, 0), counts[1].get(region, 0), effect, _share(effect, c))
        for region, effect in effects.items()
    ]
    return tuple(sorted(terms, key=lambda t: (-abs(t.delta_ns), t.region)))


def _counts(hot: Hot, account: Account) -> dict[str, int]:
    """Return executed instructions by region, and what is left of the issued ones."""
    counts: Counter[str] = Counter()
    for key, n in hot.executed.items():
        counts[hot.region_of[key]] += n
    inside = counts.total()
    # Code that the report does not hold (a library's) executes too. Counters of different passes may disagree the other
    # way round: that is no code, and stays with the rest.
    outside = max(0, (account.executed_instructions or 0) - inside)
    if outside:
        counts[OUTSIDE] += outside
    counts[ISSUED_AGAIN] = (account.issued_instructions or 0) - inside - outside
    return dict(counts)


def _producers(
    c: Comparison, hots: tuple[Hot, Hot], absent: list[Absent]
) -> tuple[tuple[ProducerTerm, ...], tuple[ProducerTerm, ...]]:
    states = [t for t in c.terms if t.factor == LATENCY and t.detail in set(WarpState)]
    factor = next((t for t in c.factors if t.factor == LATENCY), None)
    if factor is None or not states or c.before_ns is None or c.after_ns is None:
        absent.append(Absent("cy/inst by producer", "the comparison has no terms of warp states to split"))
        return (), ()
    blamed = [any(r.place is not None for r in hot.rows) for hot in hots]
    if missing := list(_missing(hots, "", *blamed)):
        absent.append(Absent("cy/inst by producer", "; ".join(missing)))
        return (), ()
    weight = log_mean(c.before_ns, c.after_ns) / log_mean(factor.before or 0.0, factor.after or 0.0)
    samples = _blamed_samples(hots[0]), _blamed_samples(hots[1])
    regions: list[ProducerTerm] = []
    kinds: list[ProducerTerm] = []
    for term in states:
        state = WarpState(term.detail)
        cycles = term.before or 0.0, term.after or 0.0
        fine = [_with_unsampled(s.get(state, {}), x) for s, x in zip(samples, cycles, strict=True)]
        coarse = [_summed(f) for f in fine]
        for (region, kind), shares in _shares(fine, cycles).items():
            kinds.append(_term(c, state, region, kind, shares, weight))
        for region, shares in _shares(coarse, cycles).items():
            by_kind: Counter[str] = Counter()
            for side in fine:
                total = sum(side.values())
                by_kind.update({k: n / total for (r, k), n in side.items() if r == region and total})
            mostly = max(by_kind, key=lambda k: by_kind[k], default="")
            regions.append(replace(_term(c, state, region, "", shares, weight), mostly=mostly))

    def rank(t: ProducerTerm) -> tuple[float, str, str, str]:
        return (-abs(t.effect.value), t.state.value, t.region, t.kind)

    return tuple(sorted(regions, key=rank)), tuple(sorted(kinds, key=rank))


def _blamed_samples(hot: Hot) -> dict[WarpState, dict[tuple[str, str], float]]:
    """Return samples by state and by (region, class) of what is waited for."""
    found: dict[WarpState, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    for row in hot.rows:
        parts = found[row.state]
        if row.place is None:
            parts[OUTSIDE, ""] += row.samples
        elif not row.producers:
            parts[NO_PRODUCER, ""] += row.samples
        for p in row.producers:
            parts[p.culprit.region, classify(p.culprit.instruction.opcode).value] += p.weight * row.samples
    return found


def _with_unsampled(parts: Mapping[tuple[str, str], float], cycles: float) -> Mapping[tuple[str, str], float]:
    # One made-up sample, so that the whole of the state falls to this name, with no error.
    return parts if sum(parts.values()) or not cycles else {(NOT_SAMPLED, ""): 1.0}


def _summed(parts: Mapping[tuple[str, str], float]) -> Mapping[str, float]:
    out: dict[str, float] = defaultdict(float)
    for (region, _), n in parts.items():
        out[region] += n
    return out


def _shares(parts: list[Mapping[Key, float]], cycles: tuple[float, float]) -> dict[Key, tuple[Sampled, Sampled]]:
    """Return each part's cy/inst before and after."""
    keys = [*parts[0], *(k for k in parts[1] if k not in parts[0])]

    def side(n: int, key: Key) -> Sampled:
        total = sum(parts[n].values())
        return Sampled.share(parts[n].get(key, 0.0), total, cycles[n]) if total else Sampled(0.0, 0.0)

    return {key: (side(0, key), side(1, key)) for key in keys}


def _term(
    c: Comparison, state: WarpState, region: str, kind: str, sides: tuple[Sampled, Sampled], weight: float
) -> ProducerTerm:
    b, a = sides
    change = Sampled(a.value - b.value, math.hypot(a.standard_error, b.standard_error))
    effect = Sampled(weight * change.value, weight * change.standard_error)
    return ProducerTerm(state, region, kind, b, a, change, effect, _share(effect.value, c))


def _missing(hots: tuple[Hot, Hot], metric: str, *there: bool) -> Iterable[str]:
    """Say for each side that has not what a split needs what that is."""
    for side, hot, has in zip(("before", "after"), hots, there, strict=True):
        if has:
            continue
        launch = hot.account.launch
        collected = launch.instances(metric) is not None if metric else hot.account.samples is not None
        what = f"{metric} by instruction" if metric else "PC samples"
        if not collected:
            yield f"{side}: no {what} (ncu --section {v.SAMPLE_SECTION})"
        elif not hot.code.functions:
            yield f"{side}: no machine code"
        else:
            yield f"{side}: no {what} inside the kernel's code"


def _of_which(c: Comparison, found: RegionExplanation) -> dict[str, str]:
    """Return words for the factors whose change one region explains, with its part in per cent of the factor."""
    words: dict[str, str] = {}
    totals = {t.factor: t for t in c.factors}
    if found.instructions:
        top = found.instructions[0]
        words |= _named(totals[INSTRUCTIONS], top.region, top.region, top.delta_ns)
    if found.producers:
        first = found.producers[0]
        name = f"{first.state.value} on {first.region}"
        words |= _named(totals[LATENCY], name, first.region, first.effect.value)
    return words


def _named(whole: Term, name: str, region: str, effect: float) -> dict[str, str]:
    nameless = region in (UNMARKED, OUTSIDE, ISSUED_AGAIN, NOT_SAMPLED, NO_PRODUCER)
    if nameless or not whole.delta_ns or effect / whole.delta_ns < WORTH_NAMING:
        return {}
    ratio = effect / whole.delta_ns
    # Effects of a factor's parts are proportional to the parts' changes (lmdi.py), so this is the change in per cent.
    change = 100.0 * ((whole.after or 0.0) / (whole.before or 1.0) - 1.0) * ratio
    # A part larger than the whole is not "of" it: others went the other way.
    return {whole.factor: f"of which {name} {change:+.1f} %" if ratio <= 1.0 else f"{name} alone {change:+.1f} %"}


def _share(part: float, c: Comparison) -> float | None:
    return 100.0 * part / c.delta_ns if c.delta_ns else None
