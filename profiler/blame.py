"""The result of attribution as frozen values: rows, producers, causes, regions, coverage.

Three costs everywhere: ``samples`` (warp samples), ``lost`` (samples in issue slots where nothing issued) and, from
them, shares with a standard error. Sums close at every level: rows, lines, regions, causes and states add up to the
launch, ``(unmarked)`` and ``outside kernel`` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from profiler.books import Account
from profiler.code import Code, Function, Instruction
from profiler.vocabulary import WarpState

UNMARKED = "(unmarked)"
OUTSIDE = "outside kernel"
# A barrier's wait is blamed on a line where that line is this part of what sets its warps apart.
LATE = 0.5


class Method(StrEnum):
    """How a producer was found, from the firmest to none.

    ``scoreboard``: the instruction sets the scoreboard that is waited for. ``scoreboard+register``: and its result (or
    operand) is the one consumed. ``register``: register def-use alone. ``group``: an asynchronous group (cp.async,
    bulk copy, wgmma). ``self``: the cost is the waiting instruction's own (a pipe, a branch, a barrier).
    """

    SCOREBOARD = "scoreboard"
    SCOREBOARD_REGISTER = "scoreboard+register"
    REGISTER = "register"
    GROUP = "group"
    SELF = "self"
    OUTSIDE = "outside kernel"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction in its function, and the region that it belongs to."""

    function: str
    instruction: Instruction
    region: str

    @property
    def file(self) -> str | None:
        """Innermost source file, headers of the CUDA toolkit left out."""
        frame = self.instruction.frame
        return None if frame is None else frame.file

    @property
    def line(self) -> int | None:
        """The line in it."""
        frame = self.instruction.frame
        return None if frame is None else frame.line

    @property
    def source(self) -> str | None:
        """File name and line without folders, ``q6k.cu:47``; None without line information."""
        if self.file is None:
            return None
        return f"{self.file.replace(chr(92), '/').rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Producer:
    """What a waiting instruction waits for: ``weight`` is its part of the wait, the weights of a row sum to 1.

    ``joint``: the wait ends only when every joint producer of the row is done (an instruction that reads two loads);
    which of them is late cannot be told, since loads may overtake one another (benchmarks/gpu/load_order.cu). Producers
    that are not joint are alternatives: the one on the path taken, weighted by executed counts.
    ``loop_carried`` is the number of loop back edges between producer and consumer (0: same iteration; 1: software
    pipelining by one). ``chain`` leads from the producer to what *it* depended on: the load that made its address, the
    copies of a group, the late path before a barrier. ``note`` says what the places alone do not.
    ``late_share``: of a barrier, the part of what makes warps late that lies on the line of ``chain[0]`` (0..1).
    """

    place: Place
    weight: float
    method: Method
    loop_carried: int = 0
    chain: tuple[Place, ...] = ()
    note: str = ""
    joint: bool = False
    late_share: float = 0.0

    @property
    def culprit(self) -> Place:
        """Whom the wait is blamed on: the producer or, of a barrier, the line that most of the lateness lies on."""
        return self.chain[0] if self.chain and self.late_share >= LATE else self.place


@dataclass(frozen=True, slots=True)
class Row:
    """Samples of one state at one instruction. ``place`` is None for samples outside the kernel's code."""

    place: Place | None
    state: WarpState
    samples: int
    lost: int
    executed: int | None
    method: Method
    producers: tuple[Producer, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """What is waited for, in a state, and where: fractional samples, since a wait may have alternative producers.

    ``producers`` are several when they are waited for together (joint), none where no instruction is to blame (outside
    kernel, unknown). ``waiters`` by falling samples.
    """

    producers: tuple[Place, ...]
    state: WarpState
    method: Method
    samples: float
    lost: float
    waiters: tuple[tuple[Place, float], ...]
    chain: tuple[Place, ...] = ()
    loop_carried: int = 0
    note: str = ""

    @property
    def producer(self) -> Place | None:
        """The producer, or the first of a joint set."""
        return self.producers[0] if self.producers else None


@dataclass(frozen=True, slots=True)
class RegionCost:
    """Costs of one region; ``executed`` warp instructions; ``states`` samples by state.

    ``waits_for``: samples of this region by the region of the producer, the region itself included.
    """

    name: str
    samples: int
    lost: int
    executed: int | None
    states: Mapping[WarpState, int]
    waits_for: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Samples of a state by the method that attributed them.

    ``unique`` of them have exactly one producer, ``joint`` a set whose members are all waited for; the rest have
    alternatives, or none.
    """

    state: WarpState
    samples: int
    by_method: Mapping[Method, int]
    unique: int
    joint: int


@dataclass(frozen=True)
class Hot:
    """Attribution of one launch. ``rows`` are complete; everything else is summed from them.

    ``executed`` warp and ``threads`` thread instructions by (function, offset); empty where they were not counted.
    ``region_of`` maps (function, offset) to the region; ``region_source`` says where regions come from: ``source``
    comments``, ``region file`` or ``inlined functions``.
    """

    account: Account
    code: Code
    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    regions: tuple[RegionCost, ...]
    coverage: tuple[Coverage, ...]
    executed: Mapping[tuple[str, int], int]
    region_of: Mapping[tuple[str, int], str]
    region_source: str
    problems: tuple[str, ...] = ()
    threads: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @cached_property
    def samples(self) -> int:
        """All samples."""
        return sum(r.samples for r in self.rows)

    @cached_property
    def lost(self) -> int:
        """Samples in empty issue slots."""
        return sum(r.lost for r in self.rows)

    @property
    def kernel(self) -> Function | None:
        """The launched function, None when its code could not be read."""
        return next(iter(self.code.functions.values()), None)
