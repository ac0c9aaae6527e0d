"""Hold cyinst to the planted kernels: is the guilty line named, is the gain foretold, is it attributed?

    python scripts/truth.py [totals|table|pairs|failures]     one of the parts of docs/truth.md, or all of them

Reads ``kernels/planted/captures``: of each pair one report (``NAME.sm90.ncu-repz``) with a launch of either kernel, and
``timings.json``, in which ``benchmarks/gpu/planted_pairs.py`` left unprofiled, interleaved times of the same kernels.
tests/test_truth.py fails when the totals fall.
"""

from __future__ import annotations

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dashboards.markdown import table as markdown_table
from profiler.align import explain_by_region
from profiler.attribution import attribute_launch
from profiler.blame import Hot
from profiler.compare import Comparison, explain
from profiler.cubin import CodeReader, open_code
from profiler.levers import Kind, Lever, least, levers_of, more_warps
from profiler.loading import bundled, neighbour
from profiler.model import Report
from profiler.ncu_parse import load
from profiler.vocabulary import metrics_for_attribution

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "kernels" / "planted"
CAPTURES = PLANTED / "captures"
plant = neighbour(__file__, "../kernels/planted/plant.py")
# What a factor of the launch, rather than a region of the code, explains.
FACTORS = ("active warps", "active share")
# Points by which the gain of one pair (half_lanes) differed from one hour to another on the same card.
APART = 2.1
HEADINGS = {
    "totals": "## How often it is right",
    "table": "## Pair by pair",
    "failures": "## Where it is not right",
    "pairs": "## What is planted",
}
# A prediction that is further off is listed among the failures.
WORST_TOLD = 20.0


def names() -> list[str]:
    """Return the planted pairs, in order of name."""
    return sorted(name.removeprefix("planted/") for name in bundled() if name.startswith("planted/"))


@dataclass(frozen=True)
class Result:
    """What cyinst said of a pair, beside the truth. Gains and ceilings in per cent of the guilty kernel's time.

    ``rank``: the place of the true culprit among the levers, 1 for the first; None when it is not among them. A lever
    that names several lines together holds as many places. ``main_state``: whether the state that the spec names first
    leads there. ``first``: what ranks first, in words. ``measured``: from the unprofiled times. ``uncertainty``: of
    measured gain and ceiling together, in points. ``known``: whether ``expected`` is more than a bound. ``share``: the
    part of the captured change that compare lays to the cause, in per cent, ``attributed`` whether it is the largest.
    """

    name: str
    truth: Any
    rank: int | None
    first: str
    ceiling: float
    uncertainty: float
    expected: float
    measured: float
    share: float
    attributed: bool
    known: bool
    main_state: bool

    @property
    def error(self) -> float | None:
        """Predicted over achieved speed-up - 1, in per cent: GPA's measure (CGO 2021). None without a prediction."""
        if not self.known:
            return None
        return 100.0 * ((1.0 - self.measured / 100.0) / (1.0 - self.expected / 100.0) - 1.0)

    @property
    def above(self) -> float:
        """Points by which the measured gain exceeds the ceiling, uncertainty included; 0 where it does not."""
        return max(0.0, self.measured - self.ceiling - self.uncertainty)


def truth_of(name: str) -> Any:
    """Return a pair's TRUTH."""
    return neighbour(__file__, f"../kernels/planted/{name}/spec.py").TRUTH


def guilty_lines(name: str, text: str) -> frozenset[int]:
    """Return the numbers of the lines of NAME.cu that read ``text``."""
    lines = (PLANTED / name / f"{name}.cu").read_text(encoding="utf-8").splitlines()
    return frozenset(n for n, line in enumerate(lines, 1) if text and line.split("//")[0].strip() == text)


def is_guilty(lever: Lever, name: str, truth: Any, lines: frozenset[int]) -> bool:
    """Say whether a lever is the planted cause: the line, and the state that leads there."""
    if truth.states == (plant.NO_WARPS,):
        return lever.kind is Kind.NO_WARPS
    at = any(file.replace("\\", "/").endswith(f"/{name}.cu") and line in lines for file, line in lever.lines)
    if truth.states == (plant.IDLE_LANES,):
        return at and lever.kind is Kind.IDLE_LANES
    return at and lever.kind is Kind.LINE and lever.state is not None and lever.state.value in truth.states


def words(lever: Lever) -> str:
    """Return a lever in a few words: where, and the state."""
    if lever.kind is Kind.NO_WARPS:
        return "no warps"
    at = " and ".join(dict.fromkeys(p.source or p.instruction.text for p in lever.places))
    return f"{at} {'idle lanes' if lever.kind is Kind.IDLE_LANES else lever.state.value if lever.state else ''}"


def attribution(comparison: Comparison, hots: tuple[Hot, Hot], region: str) -> tuple[float, bool]:
    """Return the share of the change that compare lays to a region (or factor), and whether that is the largest.

    A region's part are its instructions and the waits, in every state, for them.
    """
    delta = comparison.delta_ns
    assert delta
    parts: dict[str, float] = {}
    for term in comparison.factors:
        if term.factor in FACTORS:
            parts[term.factor] = term.delta_ns
    split = explain_by_region(comparison, *hots)
    for instructions in split.instructions:
        parts[instructions.region] = parts.get(instructions.region, 0.0) + instructions.delta_ns
    for waits in split.producers:
        parts[waits.region] = parts.get(waits.region, 0.0) + waits.effect.value
    largest = min(parts, key=lambda part: parts[part] / abs(delta))
    return 100.0 * parts.get(region, 0.0) / delta, largest == region


@cache
def timings() -> dict[str, Any]:
    """Return what the benchmark wrote, by pair: {variant: {us, low, high, rounds}}."""
    found: dict[str, Any] = json.loads((CAPTURES / "timings.json").read_text(encoding="utf-8"))["us"]
    return found


def measured(name: str) -> tuple[float, float]:
    """Return the gain in per cent of the guilty kernel's time, and its standard error in points.

    A median of n normal values has the standard error 1.253 sigma / sqrt(n), and sigma is the quartiles' distance over
    1.349.
    """
    guilty, fixed = (timings()[name][variant] for variant in ("guilty", "fixed"))
    ratio = fixed["us"] / guilty["us"]
    relative = [1.253 * (t["high"] - t["low"]) / 1.349 / t["rounds"] ** 0.5 / t["us"] for t in (guilty, fixed)]
    return 100.0 * (1.0 - ratio), 100.0 * ratio * (relative[0] ** 2 + relative[1] ** 2) ** 0.5


def hots_of(name: str, report: Report, reader: CodeReader) -> list[Hot]:
    """Attribute the two launches of a report: guilty, fixed."""
    launches = [next(x for x in report.launches if x.kernel == f"{name}_{kind}") for kind in ("guilty", "fixed")]
    return [attribute_launch(report, launch, reader=reader).hot for launch in launches]


def result_of(name: str, *captures: list[Hot]) -> Result:
    """Judge a pair by its captures: one, or two in which joint waits were split, oldest load first and youngest."""
    truth, hots = truth_of(name), captures[0]
    levers, lines = levers_of(hots[0]), guilty_lines(name, truth.line)
    for other in captures[1:]:
        levers = least(levers, levers_of(other[0]))
    place, chosen = 0, None
    for lever in levers:
        if is_guilty(lever, name, truth, lines):
            chosen = lever
            break
        place += max(1, len(lever.places))
    rank = None if chosen is None else place + max(1, len(chosen.places))
    ceiling = chosen.ceiling.value if chosen is not None else 0.0
    expected, noise, known = 0.0, 0.0, True
    if chosen is not None:
        expected = chosen.waiting_expected if truth.keeps else chosen.expected
        noise, known = chosen.ceiling.standard_error, chosen.known
    if truth.region == FACTORS[0]:
        # The fix is not to take the line away but to have more warps.
        more = more_warps(hots[0])
        ceiling, expected, noise = (more.ceiling, more.expected, 0.0) if more is not None else (0.0, 0.0, 0.0)
    comparison = explain(hots[0].account, hots[1].account)
    share, attributed = attribution(comparison, (hots[0], hots[1]), truth.region)
    gain, error = measured(name)
    uncertainty = 2.0 * (noise**2 + error**2) ** 0.5 + APART
    state = chosen.state.value if chosen is not None and chosen.kind is Kind.LINE and chosen.state else None
    main_state = chosen is not None and state in (None, truth.states[0])
    first = words(levers[0]) if levers else "nothing"
    return Result(name, truth, rank, first, ceiling, uncertainty, expected, gain, share, attributed, known, main_state)


@cache
def results() -> tuple[Result, ...]:
    """Judge every pair."""
    with ThreadPoolExecutor() as pool:
        # Reading and disassembling are other processes.
        return tuple(pool.map(judged, names()))


def judged(name: str) -> Result:
    """Read what was captured of a pair, and judge it."""
    orders = (".oldest", ".youngest") if truth_of(name).joint else ("",)
    paths = [CAPTURES / f"{name}{order}.sm90.ncu-repz" for order in orders]
    read = [(load(path, metrics=metrics_for_attribution()), open_code(str(path))) for path in paths]
    return result_of(name, *(hots_of(name, *one) for one in read))


def table() -> str:
    """Return the table of all pairs."""
    head = (
        "pair", "guilty line", "state", "hot ranks first", "rank of the truth", "ceiling", "expected", "measured",
        "error of the speed-up", "change laid to it",
    )  # fmt: skip
    rows = []
    for r in results():
        excess = f", {r.above:.1f} points above" if r.above else ""
        rows.append([
            f"`{r.name}`", f"`{r.truth.line}`" if r.truth.line else "the launch", " / ".join(r.truth.states), r.first,
            "not named" if r.rank is None else str(r.rank), f"{r.ceiling:.1f} ± {r.uncertainty:.1f} %",
            f"{r.expected:.1f} %" if r.known else "not known", f"{r.measured:.1f} %{excess}",
            "" if r.error is None else f"{r.error:+.1f} %",
            f"{r.share:.0f} %{'' if r.attributed else ', not the largest'}",
        ])  # fmt: skip
    return "\n".join(markdown_table(head, rows))


def pairs() -> str:
    """Return what is planted: cause, why it is certain, what the twin does."""
    rows = []
    for name in names():
        truth = truth_of(name)
        rows.append([f"`{name}`", truth.cause, truth.why, truth.fix])
    return "\n".join(markdown_table(("pair", "cause", "why it is certain", "the twin"), rows))


def totals() -> dict[str, float]:
    """Return the figures that docs/truth.md promises."""
    found = results()
    errors = [abs(r.error) for r in found if r.error is not None]
    return {
        "pairs": len(found),
        "top-1": sum(r.rank == 1 for r in found),
        "top-1 in the main state": sum(r.rank == 1 and r.main_state for r in found),
        "top-3": sum(r.rank is not None and r.rank <= 3 for r in found),
        "gain attributed": sum(r.attributed for r in found),
        "above the ceiling": sum(r.above > 0 for r in found),
        "predicted": len(errors),
        "mean error, %": statistics.fmean(errors),
        "median error, %": statistics.median(errors),
        "worst error, %": max(errors),
    }


def summary() -> str:
    """Return the totals as a table beside the figures to beat."""
    t = totals()
    n = f"{t['pairs']:.0f}"
    rows = [
        ["guilty line and state rank first", f"{t['top-1']:.0f} of {n}", ""],
        ["the same, in the state that the spec names first", f"{t['top-1 in the main state']:.0f} of {n}", ""],
        ["among the first three", f"{t['top-3']:.0f} of {n}", ""],
        ["largest part of the change laid to the cause", f"{t['gain attributed']:.0f} of {n}", ""],
        ["measured gain above the ceiling", f"{t['above the ceiling']:.0f} of {n}", ""],
        ["gain foretold", f"{t['predicted']:.0f} of {n}", "18 of 18"],
        ["error of the foretold speed-up, mean", f"{t['mean error, %']:.1f} %", "9.8 %"],
        ["median", f"{t['median error, %']:.1f} %", ""],
        ["worst", f"{t['worst error, %']:.1f} %", "42 %"],
    ]
    return "\n".join(markdown_table(("", "cyinst", "GPA (CGO 2021, 18 pairs)"), rows))


def failures() -> str:
    """Return a line for each pair that is not wholly right."""
    lines = []
    for r in results():
        wrong = []
        if r.rank != 1:
            wrong.append(f"rank {r.rank}" if r.rank else "not named")
        if not r.main_state:
            wrong.append(f"led by another of its states than {r.truth.states[0]}")
        if not r.attributed:
            wrong.append(f"compare lays {r.share:.0f} % of the change to it, not the largest part")
        if r.above:
            wrong.append(f"{r.above:.1f} points above the ceiling")
        if r.error is None:
            wrong.append("the gain is not foretold")
        elif abs(r.error) > WORST_TOLD:
            wrong.append(f"speed-up foretold {r.error:+.0f} % off")
        if wrong:
            lines.append(f"- `{r.name}`: {'; '.join(wrong)}. {r.truth.known}".rstrip())
    return "\n".join(lines) or "None."


def main() -> int:
    """Print what was asked for."""
    parts = {"totals": summary, "table": table, "failures": failures, "pairs": pairs}
    for name in sys.argv[1:] or parts:
        print(f"{HEADINGS[name]}\n\n{parts[name]()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
