"""Splitting joint waits: what a patched cubin waits for, and that nothing but wait masks has changed in it."""

from __future__ import annotations

import pytest

from profiler import elf
from profiler.build import build
from profiler.cfg import FlowGraph
from profiler.code import Function
from profiler.errors import CyinstError, UsageError
from profiler.launch import Bench
from profiler.loading import resolve
from profiler.producers import ProducerFinder
from profiler.session import Options, targets
from profiler.split_waits import _functions, split_waits
from profiler.verify import verify
from profiler.vocabulary import WarpState

LONG = WarpState.LONG_SCOREBOARD
PAIRS = ("two_loads_l1", "two_loads_l2")


@pytest.fixture(scope="module", params=PAIRS)
def image(request: pytest.FixtureRequest) -> bytes:
    variant = resolve(f"planted/{request.param}").specimen.variants[0]
    return build(variant.sources[0], "sm_90a").read_bytes()


def joint(function: Function) -> dict[int, int]:
    """Return {offset: number of loads that are waited for together}."""
    finder = ProducerFinder(function)
    found = {}
    for i in function.instructions:
        if i.control is not None and i.control.wait_mask:
            parts = {b.part for b in finder.find(i.index, LONG)} - {None}
            if len(parts) > 1:
                found[i.offset] = len(parts)
    return found


@pytest.mark.parametrize("first", ["oldest", "youngest"])
def test_each_load_is_waited_for_by_an_instruction_of_its_own(image: bytes, first: str) -> None:
    copy = split_waits(image, first)
    assert {s.function for s in copy.splits} == {f.name for _, f in _functions(image)}
    before = {f.name: f for _, f in _functions(image)}
    after = {f.name: f for _, f in _functions(copy.image)}
    for split in copy.splits:
        whole = ProducerFinder(before[split.function])
        both = {b.position for b in whole.find(before[split.function].by_offset[split.offset].index, LONG)}
        assert len(both) == 2
        finder = ProducerFinder(after[split.function])
        (earlier,) = split.earlier
        alone = {
            offset: [b.position for b in finder.find(after[split.function].by_offset[offset].index, LONG)]
            for offset in (earlier[0], split.offset)
        }
        order = sorted(both, reverse=first == "youngest")
        assert [alone[earlier[0]], alone[split.offset]] == [[order[0]], [order[1]]]
        assert split.offset not in joint(after[split.function])


def test_nothing_but_wait_masks_changes_and_no_wait_is_lost(image: bytes) -> None:
    copy = split_waits(image)
    assert len(copy.image) == len(image)
    changed = 0
    for section in elf.parse(image).code_sections:
        for at in range(section.offset, section.offset + section.size, 16):
            low, high = (int.from_bytes(image[at + n : at + n + 8], "little") for n in (0, 8))
            new_low, new_high = (int.from_bytes(copy.image[at + n : at + n + 8], "little") for n in (0, 8))
            assert new_low == low
            assert (new_high ^ high) & ~(0x3F << 52) == 0
            assert new_high & high == high
            changed += new_high != high
    assert changed == sum(len(s.earlier) for s in copy.splits)
    code = [(s.offset, s.offset + s.size) for s in elf.parse(image).code_sections]
    outside = [n for n in range(len(image)) if image[n] != copy.image[n] and not any(a <= n < b for a, b in code)]
    assert outside == []


def test_a_wait_is_put_after_the_last_load_and_in_the_same_block(image: bytes) -> None:
    copy = split_waits(image)
    for _, function in _functions(image):
        finder, graph = ProducerFinder(function), FlowGraph(function)
        for split in (s for s in copy.splits if s.function == function.name):
            at = function.by_offset[split.offset].index
            loads = [b.position for b in finder.find(at, LONG) if not b.loop_carried]
            for offset, _ in split.earlier:
                position = function.by_offset[offset].index
                assert max(loads) < position < at
                assert graph.block_of[position] == graph.block_of[at]


def test_loads_that_share_a_scoreboard_are_left_together() -> None:
    variant = resolve("q6k:1_bytes").specimen.pick(("1_bytes",))[0]
    image = build(variant.sources[0], "sm_90a").read_bytes()
    copy = split_waits(image)
    assert copy.left > 0
    assert copy.left + len(copy.splits) == sum(len(joint(f)) for _, f in _functions(image))


def test_profile_passes_it_on_to_the_launch_of_a_specimen_and_refuses_it_for_a_program() -> None:
    options = Options(split_waits="youngest")
    (target,) = targets(("planted/chase:guilty",), None, options)
    assert target.program[-2:] == ("--split-waits", "youngest")
    assert target.label == "planted.chase.guilty.youngest"
    (plain,) = targets(("planted/chase:guilty",), None, Options())
    assert "--split-waits" not in plain.program
    with pytest.raises(UsageError, match="--split-waits copies the kernels of a specimen"):
        targets((), ("python3", "train.py"), options)


def test_a_cubin_that_is_none_is_refused() -> None:
    with pytest.raises(CyinstError):
        split_waits(b"\x7fELF" + bytes(60))


@pytest.mark.gpu
@pytest.mark.parametrize("first", ["oldest", "youngest"])
@pytest.mark.parametrize("name", [*(f"planted/{pair}" for pair in PAIRS), "q6k:6_cp_async"])
def test_a_kernel_with_split_waits_computes_the_same(name: str, first: str) -> None:
    chosen = resolve(name)
    bench = Bench(split_waits=first)
    result = verify(chosen.specimen, chosen.specimen.pick(chosen.names), bench, programs=False)
    assert bench.split > 0
    assert {check.verdict for check in result.checks} == {"ok"}
