"""What changed by region and by instruction between two builds, as frozen values: the result of align.py.

Instructions are warp instructions of the launch, cy/inst is cycles per issued instruction, effects are ns (per GMAC
under per-work). The leaves of a split add up to the term of the Comparison that they split.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler.blame import Place
from profiler.books import Sampled
from profiler.vocabulary import WarpState

ISSUED_AGAIN = "issued again"
# A state that was counted, but in which no sample fell: nothing tells whom it waited for.
NOT_SAMPLED = "(not sampled)"
NO_PRODUCER = "(no producer)"


@dataclass(frozen=True, slots=True)
class Pair:
    """An instruction of each build, or of one build only (the other is None and executed nothing).

    ``moved``: matched out of order. Executed counts are None when a build has none.
    """

    region: str
    before: Place | None
    after: Place | None
    executed_before: int | None
    executed_after: int | None
    moved: bool = False

    @property
    def change(self) -> int | None:
        """Executed after minus executed before."""
        known = self.executed_before is not None and self.executed_after is not None
        return (self.executed_after or 0) - (self.executed_before or 0) if known else None

    @property
    def sass(self) -> str:
        """The text of the instruction, as it is after where it is in both builds."""
        place = self.after or self.before
        return "" if place is None else place.instruction.text


@dataclass(frozen=True, slots=True)
class Kind:
    """Instructions of one region that read alike (normalised ``sass``): how many, and how often executed.

    ``example`` is the text of one of them.
    """

    region: str
    sass: str
    example: str
    instructions_before: int
    instructions_after: int
    executed_before: int
    executed_after: int

    @property
    def change(self) -> int:
        """Executed after minus executed before."""
        return self.executed_after - self.executed_before


@dataclass(frozen=True, slots=True)
class Alignment:
    """Every instruction of both builds exactly once. ``kinds`` sum them by region and text, largest change first."""

    pairs: tuple[Pair, ...]
    kinds: tuple[Kind, ...] = ()

    @property
    def matched(self) -> tuple[Pair, ...]:
        """Pairs of instructions of both builds."""
        return tuple(p for p in self.pairs if p.before is not None and p.after is not None)

    @property
    def only_before(self) -> tuple[Pair, ...]:
        """Instructions that the build after has not."""
        return tuple(p for p in self.pairs if p.after is None)

    @property
    def only_after(self) -> tuple[Pair, ...]:
        """Instructions that the build before had not."""
        return tuple(p for p in self.pairs if p.before is None)

    def changed(self, limit: int | None = None) -> tuple[Pair, ...]:
        """Return the instructions whose executed count changed, the largest change first."""
        moved = [p for p in self.pairs if p.change]
        return tuple(sorted(moved, key=lambda p: (-abs(p.change or 0), p.region, p.sass))[:limit])


@dataclass(frozen=True, slots=True)
class RegionTerm:
    """A region's part of the instruction term; ``region`` may be ``outside kernel`` or ``issued again``.

    ``before`` and ``after`` are executed warp instructions of the whole launch; those of all terms add up to the issued
    ones.
    """

    region: str
    before: int
    after: int
    delta_ns: float
    share_pct: float | None


@dataclass(frozen=True, slots=True)
class ProducerTerm:
    """A warp state's part that waits for one region's instructions, of one class (``kind``) or of all ("").

    ``before``, ``after`` and ``change`` in cy/inst, ``effect`` in ns: the counted cycles of the state times a sampled
    share, so they carry the standard error of the share. ``share_pct`` of the whole change. ``mostly`` is the class of
    the instructions that most of the samples, of both sides, wait for.
    """

    state: WarpState
    region: str
    kind: str
    before: Sampled
    after: Sampled
    change: Sampled
    effect: Sampled
    share_pct: float | None
    mostly: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A split that cannot be made, and what is missing on which side."""

    quantity: str
    reason: str


@dataclass(frozen=True)
class RegionExplanation:
    """The terms of a Comparison by region.

    ``instructions`` add up to the factor ``instructions``; ``producers`` (by region) and ``producer_kinds`` (by region
    and class) of a state to that state's term of ``cy/inst``. A split is empty when it is named in ``absent``.
    ``region_sources`` say where the regions of the two builds come from.
    """

    alignment: Alignment
    instructions: tuple[RegionTerm, ...]
    producers: tuple[ProducerTerm, ...]
    producer_kinds: tuple[ProducerTerm, ...]
    region_sources: tuple[str, str]
    absent: tuple[Absent, ...] = ()
    problems: tuple[str, ...] = ()
