"""The q4_K ladder on a GPU: every rung right, planes used and equal to NumPy's, and planted bugs found."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bug import KERNELS
from q4k_bugs import BUGS, Bug, checked

from profiler.launch import Bench
from profiler.loading import load_specimen, neighbour
from profiler.specimen import Shape
from profiler.verify import Verification, verify

pytestmark = pytest.mark.gpu

SPEC = load_specimen(KERNELS / "q4k")
LADDER = tuple(variant for variant in SPEC.variants if variant.bit_equal == "k32")
q4k = neighbour(KERNELS / "q4k" / "spec.py", "../formats/q4k.py")
planes = neighbour(KERNELS / "q4k" / "spec.py", "planes.py")


@pytest.fixture(scope="module")
def bench() -> Bench:
    pytest.importorskip("cupy")
    return Bench()


@pytest.fixture(scope="module")
def verification(bench: Bench) -> Verification:
    """The whole sweep, every rung."""
    return verify(SPEC, tuple(SPEC.variants), bench, seed=11)


@pytest.mark.parametrize("rung", [variant.name for variant in SPEC.variants])
def test_every_rung_is_right_at_every_shape(verification: Verification, rung: str) -> None:
    checks = verification.of(rung)
    assert len(checks) == len(SPEC.sweep)
    assert [(c.shape, c.problems) for c in checks if c.verdict != "ok"] == []
    # Of the planes that is: the kernel that reads them ran, and not the one that it falls back to.
    assert all(c.path_ok for c in checks)


def test_rungs_of_the_group_have_the_same_bits(verification: Verification) -> None:
    assert len(LADDER) == 5
    for variant in LADDER:
        led = [c.same_bits_as for c in verification.of(variant.name)]
        assert led == [None if variant.name == "1_narrow" else ("1_narrow", str(shape)) for shape in SPEC.sweep]


def test_whole_programs_agree(verification: Verification) -> None:
    assert [(c.variant, c.problems) for c in verification.programs if c.verdict != "ok"] == []
    assert len({c.digest for c in verification.programs if c.variant in {v.name for v in LADDER}}) == 1


def test_planes_take_a_byte_a_weight_and_eight_a_chunk(verification: Verification) -> None:
    for variant in LADDER:
        for check in verification.of(variant.name):
            rows, k = check.shape["rows"], check.shape["k"]
            planes_bytes = -(-rows // 128) * 128 * k * 5 // 4 if "planes" in variant.name else 0
            # CuPy's pool gives memory in multiples of 512 bytes.
            assert planes_bytes <= check.extra_bytes <= planes_bytes + 1024, (variant.name, check.shape)


@pytest.mark.parametrize(("rows", "k"), [(1, 256), (130, 768), (640, 2048)])
def test_planes_of_the_device_are_those_of_numpy(bench: Bench, rows: int, k: int) -> None:
    (variant,) = SPEC.pick(("4_planes_kd4",))
    shape = Shape(tokens=1, rows=rows, k=k)
    inputs = SPEC.make_inputs(shape, seed=rows)
    case = bench.case(SPEC, variant, shape, inputs)
    case.prepare()
    made = planes.find(int(case.inputs["weights"].data.ptr), rows, k)
    eb, sb = q4k.planes(inputs["weights"], rows, k)
    assert bench.device.download(made.eb).tobytes() == eb.tobytes()
    assert bench.device.download(made.sb).tobytes() == sb.tobytes()


def test_planes_go_with_their_weights(bench: Bench) -> None:
    (variant,) = SPEC.pick(("5_planes_kd8",))
    shape = Shape(tokens=1, rows=8, k=256)
    case = bench.case(SPEC, variant, shape, SPEC.make_inputs(shape))
    case.prepare()
    pointer = int(case.inputs["weights"].data.ptr)
    assert planes.find(pointer, 8, 256) is not None
    del case
    # The pool may give this place to the next weights of the same sizes.
    assert planes.find(pointer, 8, 256) is None


def test_another_matrix_of_the_same_sizes_is_no_bug(bench: Bench) -> None:
    assert checked(KERNELS / "q4k", "5_planes_kd8", bench).verdict == "ok"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_makes_verify_fail(bug: Bug, bench: Bench, tmp_path: Path) -> None:
    check = checked(bug.plant(tmp_path / "kernels"), bug.variant, bench)
    assert (check.verdict, bug.why in "; ".join(check.problems)) == (bug.verdict, True), check.problems
