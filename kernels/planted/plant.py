"""What is known by construction about a planted pair, and the file that both of its kernels stand in.

A planted specimen has two variants: ``guilty``, in which one cause dominates, and ``fixed``, its twin without that
cause and nothing else changed. Its ``spec.py`` binds ``TRUTH`` beside ``SPEC``; ``scripts/truth.py`` holds cyinst to
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from profiler.specimen import CudaSource, Shape, Specimen

# What costs issue slots though no warp stalls: schedulers without warps, lanes switched off.
NO_WARPS, IDLE_LANES = "no_warps", "idle_lanes"


@dataclass(frozen=True)
class Truth:
    """Who is guilty, and of what.

    ``cause``: its everyday name. ``line``: the text of the guilty source line, as it stands in the guilty kernel (of a
    function that is inlined in several places: of the call). ``states``: the warp states that it can show in, the one
    expected to lead first; or NO_WARPS (``line`` is then empty: the launch is guilty), or IDLE_LANES. ``why``: what
    makes this certain, in a sentence. ``fix``: what the twin does instead. ``region``: the ``// @region`` that holds
    the guilty lines in both kernels, or the factor that the launch's shape changes: ``active warps``, ``active share``.
    ``joint``: guilty and innocent are waited for together, so the captures split that wait, in either order.
    ``keeps``: the twin executes the guilty instructions too, and only does not wait for them. ``known``: why a row of
    the table is not as it should be.
    """

    cause: str
    line: str
    states: tuple[str, ...]
    why: str
    fix: str
    region: str
    keeps: bool = False
    joint: bool = False
    known: str = ""


class Call(NamedTuple):
    """How a kernel is launched: ``grid`` and ``block`` sizes, arguments, bytes of dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shared: int = 0


def no_inputs(specimen: Specimen) -> None:
    """Declare that the kernels start from the index of the thread."""

    @specimen.inputs
    def inputs(shape: Shape, rng: Any) -> dict[str, Any]:
        return {}


def word_a_thread(specimen: Specimen, threads: int) -> None:
    """Declare the output of ``shape.blocks`` blocks: one uint32 a thread."""

    @specimen.output
    def output(shape: Shape) -> tuple[tuple[int, ...], str]:
        return (shape.blocks * threads,), "uint32"


def pair(
    specimen: Specimen, truth: Truth, spec: str, call: Callable[[Any], Call], options: tuple[str, ...] = ()
) -> None:
    """Declare both variants of a planted specimen.

    ``spec`` is its ``__file__``; the folder NAME holds NAME.cu with the kernels NAME_guilty and NAME_fixed, compiled
    with ``options``. ``call(case)`` may look at ``case.variant.name``, for a cause that lies in the launch.
    """
    folder = Path(spec).resolve().parent
    entries = {name: f"{folder.name}_{name}" for name in ("guilty", "fixed")}
    source = CudaSource(folder / f"{folder.name}.cu", tuple(entries.values()), options)
    for name, idea in (("guilty", truth.cause), ("fixed", truth.fix)):
        _declare(specimen, name, idea, source, entries[name], call)


def _declare(
    specimen: Specimen, name: str, idea: str, source: CudaSource, entry: str, call: Callable[[Any], Call]
) -> None:
    @specimen.variant(name, idea=idea, sources=(source,), bit_equal="pair", path=lambda shape: entry)
    def prepare(case: Any) -> Callable[[], None]:
        kernel = case.kernel(entry)
        grid, block, args, shared = call(case)
        return lambda: kernel(grid, block, args, shared)
