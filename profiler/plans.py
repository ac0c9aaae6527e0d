"""Plans: what ncu is asked to collect, from a few passes to everything it knows.

``quick`` and ``books`` are section files of our own (profiler/sections), so that ncu-ui shows them as sections too. A
section folder that is given replaces ncu's own search path: our sections stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler import vocabulary as v
from profiler.errors import NoMatchError

FOLDER = Path(__file__).parent / "sections"
_GROUP = "group:"


@dataclass(frozen=True, slots=True)
class Plan:
    """A named choice of metrics: identifiers of our ``sections``, or else ncu's own ``ncu_set`` and more metrics."""

    name: str
    about: str
    sections: tuple[str, ...] = ()
    ncu_set: str | None = None
    metrics: tuple[str, ...] = ()

    def options(self, more: Sequence[str] = ()) -> list[str]:
        """Return the options of ncu that collect this plan, and the metrics ``more``."""
        words = ["--section-folder", str(FOLDER)] if self.sections else []
        for identifier in self.sections:
            words += ["--section", identifier]
        if self.ncu_set is not None:
            words += ["--set", self.ncu_set]
        metrics = [*self.metrics, *more]
        return [*words, "--metrics", ",".join(dict.fromkeys(metrics))] if metrics else words

    def wanted(self, architecture: tuple[int, int] | None) -> tuple[str, ...]:
        """Return the metrics that the plan asks for by name, on a compute capability (None: on any).

        ncu leaves out without a word what it does not know, so a report is checked against this list. Of ncu's own
        sets only the metrics that are named here count.
        """
        names = list(self.metrics)
        for identifier in self.sections:
            names += _metrics(section_file(identifier).read_text(encoding="utf-8"), architecture)
        return tuple(dict.fromkeys(names))


def section_file(identifier: str) -> Path:
    """Return the file of one of our sections."""
    return FOLDER / f"{identifier}.section"


# What the account needs, whether or not ncu's full set has it: the factors of the identity, and executed counts.
_BESIDE_FULL = (
    v.ELAPSED_CYCLES.name, v.ACTIVE_CYCLES.name, v.CLOCK.name, v.INST_ISSUED_AVG.name, v.OPCODES.name,
    v.EXECUTED_PER_PC,
)  # fmt: skip

PLANS = {
    plan.name: plan
    for plan in (
        Plan("quick", "time identity, PC samples, executed counts: states from the samples", ("CyinstQuick",)),
        Plan(
            "books", "quick, and counted warp states, eligible warps, SM, L1/TEX, L2 and DRAM throughput",
            ("CyinstQuick", "CyinstBooks"),
        ),
        Plan("full", "ncu's own full set: everything it knows, in most passes", ncu_set="full", metrics=_BESIDE_FULL),
    )
}  # fmt: skip


def plan_named(name: str) -> Plan:
    """Return a plan. Raises NoMatchError that lists them."""
    if name not in PLANS:
        raise NoMatchError(f"there is no plan {name!r}; there are {', '.join(PLANS)}")
    return PLANS[name]


def missing(wanted: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """Return which of the ``wanted`` names a report lacks; ``group:`` and ``regex:`` words name no metric."""
    have = set(present)
    return tuple(name for name in wanted if name not in have and not re.match(r"\w+:(?!:)", name))


def _metrics(text: str, architecture: tuple[int, int] | None) -> list[str]:
    """Return the metrics that a section file names, without the warp states that an architecture has not."""
    names = re.findall(r"\bName: \"([^\"]+)\"", text)
    absent = set(v.WarpState) - set(v.states_of(*architecture)) if architecture is not None else set()
    without = {state.counted_metric for state in absent}
    return [name for name in names if not name.startswith(_GROUP) and name not in without]
