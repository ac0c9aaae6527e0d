"""What sets warps apart, which branch switches lanes off, and what the pipes are busy with, on planted kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.accounting import account
from profiler.attribution import attribute_report
from profiler.blame import Hot
from profiler.books import Account
from profiler.cfg import FlowGraph
from profiler.defuse import DefUse
from profiler.lanes import WARP, idle_lanes
from profiler.levers import Kind, levers_of
from profiler.ncu_parse import load
from profiler.pipes import Pipe, pipe_cycles
from profiler.uneven import uneven_positions
from profiler.vocabulary import WarpState

CAPTURES = Path(__file__).parent.parent / "kernels" / "planted" / "captures"


def hot_of(name: str, kind: str = "guilty") -> Hot:
    return attribute_report(str(CAPTURES / f"{name}.sm90.ncu-repz"), kernel=f"^{name}_{kind}$").hot


def uneven_lines(hot: Hot) -> set[int]:
    assert hot.kernel is not None
    graph = FlowGraph(hot.kernel)
    found = uneven_positions(graph, DefUse(graph))
    return {i.frames[-1].line for i in hot.kernel.instructions if i.index in found and i.frames}


@pytest.mark.parametrize(("name", "line"), [("late_warp", 19), ("unbalanced_loop", 20)])
def test_what_a_branch_on_the_warp_decides_about_is_uneven(name: str, line: int) -> None:
    hot = hot_of(name)
    assert line in uneven_lines(hot)
    barriers = [c for c in hot.causes if c.state is WarpState.BARRIER]
    assert barriers[0].chain[0].line == line


def test_a_loop_that_all_warps_run_alike_is_even() -> None:
    hot = hot_of("chase")
    # Only the kernel's argument decides how long it goes on.
    assert 15 not in uneven_lines(hot)


def test_a_barrier_after_different_work_in_every_step_keeps_the_blame() -> None:
    hot = hot_of("barrier_each")
    top = levers_of(hot)[0]
    assert (top.state, top.places[0].instruction.base) == (WarpState.BARRIER, "BAR")


@pytest.mark.parametrize(("name", "line", "idle"), [("divergent", 15, 0.5), ("half_lanes", 23, 0.875)])
def test_idle_lanes_are_blamed_on_the_branch_that_switches_them_off(name: str, line: int, idle: float) -> None:
    hot = hot_of(name)
    (branch, parts) = max(idle_lanes(hot).items(), key=lambda item: len(item[1]))
    assert hot.code.functions[branch[0]].instructions[branch[1]].frames[-1].line == line
    assert sorted(parts.values())[len(parts) // 2] == pytest.approx(idle, abs=0.01)
    assert all(0 < part <= 1 - 1 / WARP for part in parts.values())


def test_full_warps_have_no_idle_lanes() -> None:
    assert idle_lanes(hot_of("chase")) == {}
    kinds = {x.kind for x in levers_of(hot_of("chase"))}
    assert Kind.IDLE_LANES not in kinds


def pipe_use(a: Account) -> dict[Pipe, float]:
    """Return the part of the active cycles that each pipe was busy."""
    use: dict[Pipe, float] = {}
    for opcode, count in a.opcodes.items():
        if found := pipe_cycles(opcode, a.launch.device.compute_capability):
            use[found[0]] = use.get(found[0], 0.0) + count * found[1]
    executed = sum(a.opcodes.values())
    return {pipe: a.issue_rate * cycles / executed for pipe, cycles in use.items()} if a.issue_rate else {}


def test_no_pipe_is_busier_than_always() -> None:
    seen: dict[Pipe, float] = {}
    for path in sorted(CAPTURES.glob("*.ncu-repz")):
        for launch in load(path, instances=True).launches:
            for pipe, part in pipe_use(account(launch)).items():
                assert part <= 1.01, (path.name, launch.kernel, pipe)
                seen[pipe] = max(seen.get(pipe, 0.0), part)
    # The planted kernels of a pipe keep it busy, or the cycles are wrong.
    assert seen[Pipe.FP64] > 0.75
    assert seen[Pipe.XU] > 0.85
    assert seen[Pipe.ALU] > 0.7


def test_only_known_architectures_have_pipes() -> None:
    assert pipe_cycles("LOP3.LUT", (9, 0)) == (Pipe.ALU, 2)
    assert pipe_cycles("DFMA", (8, 9)) is None
    assert pipe_cycles("LOP3.LUT", (12, 0)) is None
    assert pipe_cycles("LDG.E", (9, 0)) is None
    assert pipe_cycles("MUFU.EX2", None) is None
