"""Every planted defect gets exactly its verdict, and nothing else: sweep, guards, bits, paths, programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cli_helpers import validate
from host_bench import HostBench, planted

from profiler import export
from profiler.errors import SpecimenError
from profiler.launch import GUARD
from profiler.loading import bundled, load_specimen
from profiler.specimen import Shape, Specimen
from profiler.verify import Check, Verification, describe, verify

GOOD = ("1_good", "2_twin", "3_returned", "fast", "witness")
# Variant -> the shapes (rows, pitch) at which it fails, the verdict, the problem in full or its beginning.
EVERYWHERE = [(1, 8), (5, 8), (5, 16), (33, 4)]
BAD: dict[str, tuple[list[tuple[int, int]], str, str]] = {
    "unwritten": (EVERYWHERE, "INCORRECT", r"not written: \d+ of \d+ elements, the first at \[0, \d\]"),
    "behind": (EVERYWHERE, "INCORRECT", "wrote outside the output: 4 bytes, the nearest 1 byte behind it"),
    "before": (EVERYWHERE, "INCORRECT", "wrote outside the output: 8 bytes, the nearest 1 byte before it"),
    "wrong_once": ([(33, 4)], "INCORRECT", r"relative error .* is above 1e-06; worst at \[32, 1\]: .* instead of .*"),
    "other_bits": (EVERYWHERE, "INCORRECT", r"bits differ from 1_good at rows=.*: 1 of \d+ elements, .* at \[0, 2\]"),
    "by_layout": (
        [(5, 16)], "INCORRECT",
        r"bits differ from by_layout at rows=5 cols=7 pitch=8: 1 of 35 elements, the first at \[3, 1\]",
    ),
    "racy": (
        EVERYWHERE, "INCORRECT",
        r"not deterministic: a second launch gave other bits: 1 of \d+ elements, the first at \[0, 0\]",
    ),
    "nan": (EVERYWHERE, "INCORRECT", r"NaN: 1 of \d+ elements, the first at \[0, 1\]"),
    "raises": (EVERYWHERE, "INVALID", r"spec.py:\d+: ValueError: no such luck"),
    "no_launch": (EVERYWHERE, "INVALID", "prepare returned no launch: it returns a function without arguments"),
    "wrong_size": (EVERYWHERE[1:], "INVALID", r"the output is float32 \d x \d+, not float32 \d+ x \d"),
    "wrong_type": (EVERYWHERE, "INVALID", r"the output is float64 \d+ x \d, not float32 \d+ x \d"),
    "fallback": (EVERYWHERE[1:], "INVALID", "the path promised did not run: fast was not launched, but slow"),
    "wrong_gate": ([(5, 16)], "INVALID", "the path promised did not run: the witness is 0, not 1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def result() -> Verification:
    specimen = planted()
    return verify(specimen, specimen.variants, HostBench())


def test_the_table_of_defects_covers_every_variant(result: Verification) -> None:
    assert {v.name for v in result.variants} == {*GOOD, *BAD}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_is_ok(result: Verification, name: str) -> None:
    checks = result.of(name)
    assert len(checks) == 4
    for check in checks:
        assert (check.verdict, check.problems) == ("ok", ())
        assert check.relative_error is not None
        assert check.relative_error < 1e-7


@pytest.mark.parametrize("name", BAD)
def test_a_planted_defect_gets_its_verdict_and_one_problem(result: Verification, name: str) -> None:
    shapes, verdict, problem = BAD[name]
    for check in result.of(name):
        if (check.shape["rows"], check.shape["pitch"]) in shapes:
            assert check.verdict == verdict
            assert len(check.problems) == 1, check.problems
            assert re.fullmatch(problem, check.problems[0]), check.problems[0]
        else:
            assert (check.verdict, check.problems) == ("ok", ())


def test_how_many_elements_were_not_written_and_where(result: Verification) -> None:
    told = [check.problems[0] for check in result.of("unwritten")]
    assert told[0] == "not written: 1 of 8 elements, the first at [0, 7]"
    assert told[3] == "not written: 33 of 99 elements, the first at [0, 2]"


def test_bits_are_compared_within_the_group_and_across_layouts(result: Verification) -> None:
    def same(name: str, rows: int, pitch: int) -> Any:
        (check,) = (c for c in result.of(name) if (c.shape["rows"], c.shape["pitch"]) == (rows, pitch))
        return check.same_bits_as

    assert same("1_good", 5, 8) is None
    assert same("1_good", 5, 16) == ("1_good", "rows=5 cols=7 pitch=8")
    assert same("2_twin", 5, 16) == ("1_good", "rows=5 cols=7 pitch=8")
    assert same("3_returned", 33, 4) == ("1_good", "rows=33 cols=3 pitch=4")
    assert same("other_bits", 33, 4) is None
    # In no group: nothing is compared.
    assert same("racy", 5, 16) is None


def test_a_wrong_result_never_leads_its_group() -> None:
    specimen = planted()
    order = ("wrong_once", "1_good", "2_twin")
    checks = verify(specimen, specimen.pick(order), HostBench(), programs=False).checks
    at_33 = {c.variant: c for c in checks if c.shape["rows"] == 33}
    assert at_33["wrong_once"].verdict == "INCORRECT"
    assert at_33["2_twin"].same_bits_as == ("1_good", "rows=33 cols=3 pitch=4")


def test_paths_are_reported_only_where_promised(result: Verification) -> None:
    assert {c.path_ok for c in result.of("1_good")} == {None}
    assert {c.path_ok for c in result.of("fast")} == {True}
    assert [c.path_ok for c in result.of("fallback")] == [True, False, False, False]


def test_extra_memory_is_what_prepare_took(result: Verification) -> None:
    assert [c.extra_bytes for c in result.of("1_good")] == [0, 0, 0, 0]
    assert [c.extra_bytes for c in result.of("2_twin")] == [32, 140, 140, 396]


def test_memory_that_was_allocated_past_array_counts_too() -> None:
    specimen, bench = planted(), HostBench()
    (good,) = specimen.pick(("1_good",))

    def greedy(case: Any) -> Any:
        bench.device.empty((1000,), "uint8")
        case.array(10, "uint8")
        return good.prepare(case)

    (check,) = verify(specimen, [replace(good, prepare=greedy)], bench, specimen.sweep[:1], programs=False).checks
    assert check.extra_bytes == 1010


def test_programs_agree_within_a_group(result: Verification) -> None:
    found = {p.variant: p for p in result.programs}
    assert found["1_good"].verdict == found["2_twin"].verdict == "ok"
    assert found["2_twin"].same_as == "1_good"
    assert found["2_twin"].digest == found["1_good"].digest
    assert found["1_good"].same_as is None
    assert (found["other_bits"].verdict, found["other_bits"].problems) == (
        "INCORRECT", ("its output differs from that of 1_good",),
    )  # fmt: skip
    assert found["other_bits"].digest != found["1_good"].digest
    assert found["raises"].verdict == "INVALID"
    assert "ValueError: no such luck" in found["raises"].problems[0]
    # The program's shape has two rows: there the fallback runs.
    assert found["fallback"].verdict == "INVALID"
    assert "(at rows=2 cols=3 pitch=4)" in found["fallback"].problems[0]


def test_a_program_of_another_type_is_invalid() -> None:
    specimen = planted()
    specimen._programs["text"] = lambda run: "not bytes"
    checks = verify(specimen, specimen.pick(("1_good",)), HostBench(), specimen.sweep[:1]).programs
    (text,) = (c for c in checks if c.program == "text")
    assert text.problems == ("TypeError: a program returns bytes, not str",)


def test_a_lost_context_ends_the_run() -> None:
    specimen, bench = planted(), HostBench()
    good, twin = specimen.pick(("1_good", "2_twin"))

    def fatal(case: Any) -> Callable[[], None]:
        def launch() -> None:
            if case.shape.pitch == 16:
                bench.device.dead = True  # type: ignore[attr-defined]

        plain = good.prepare(case)
        # What is returned here is no array, hence no output.
        return lambda: (plain(), launch())

    result = verify(specimen, [good, replace(twin, prepare=fatal)], bench)
    by_shape = [[c.verdict for c in result.of(name)] for name in ("1_good", "2_twin")]
    assert by_shape == [["ok", "ok", "ok", "not run"], ["ok", "ok", "INVALID", "not run"]]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in result.of("2_twin")[2].problems[0]
    assert [p.verdict for p in result.programs] == ["not run", "not run"]
    assert result.verdicts == {"ok": 5, "INVALID": 1, "not run": 4}
    assert not result.ok


def test_a_variants_own_tolerance_counts() -> None:
    specimen = planted()
    (wrong,) = specimen.pick(("wrong_once",))
    loose = replace(wrong, tolerance=1.0, bit_equal=None)
    assert verify(specimen, [loose], HostBench(), programs=False).ok
    strict = replace(specimen.pick(("other_bits",))[0], tolerance=0.0, bit_equal=None)
    result = verify(specimen, [strict], HostBench(), programs=False)
    assert {c.verdict for c in result.checks} == {"INCORRECT"}


def test_the_same_seed_gives_the_same_numbers() -> None:
    specimen = planted()
    variants = specimen.pick(("1_good",))

    def errors(seed: int) -> list[float | None]:
        return [c.relative_error for c in verify(specimen, variants, HostBench(), seed=seed, programs=False).checks]

    assert errors(3) == errors(3)
    assert errors(3) != errors(4)


def changed(part: str, make: Callable[..., Any]) -> Specimen:
    specimen = planted()
    specimen._parts[part] = make
    return specimen


@pytest.mark.parametrize(
    ("part", "make", "told"),
    [
        ("inputs", lambda shape, rng: 1 / 0, "planted at rows=1 cols=8 pitch=8: inputs fails: ZeroDivisionError"),
        ("reference", lambda shape, x: np.zeros((2, 2)), "the reference is 2 x 2, the output 1 x 8"),
        ("reference", lambda shape, x: np.zeros((1, 8), np.float32), "the reference must be finite float64"),
        ("reference", lambda shape, x: np.full((shape.rows, shape.cols), np.nan), "the reference must be finite"),
        (
            "reference", lambda shape, x: np.full((shape.rows, shape.cols), float(shape.pitch)),
            "the reference differs from that at rows=5 cols=7 pitch=8, where only pitch differs",
        ),
    ],
)  # fmt: skip
def test_a_specimen_that_cannot_be_checked_says_why(part: str, make: Callable[..., Any], told: str) -> None:
    specimen = changed(part, make)
    with pytest.raises(SpecimenError, match=re.escape(told)):
        verify(specimen, specimen.pick(("1_good",)), HostBench())


@pytest.mark.parametrize("name", list(bundled()))
def test_every_bundled_specimen_can_be_checked(name: str) -> None:
    # Inputs and references of the whole sweep: sizes, finite, and the same whatever the layout.
    specimen = load_specimen(bundled()[name])
    assert len(specimen.sweep) >= (2 if name.startswith(("examples/", "planted/")) else 8)
    assert verify(specimen, [], HostBench(), programs=False).checks == ()


def test_a_zero_reference_is_no_division_by_zero() -> None:
    specimen = changed("reference", lambda shape, x: np.zeros((shape.rows, shape.cols)))
    (good,) = specimen.pick(("1_good",))
    zero = replace(good, prepare=lambda case: lambda: case.out.__setitem__(..., 0))
    assert [c.relative_error for c in verify(specimen, [zero], HostBench(), programs=False).checks] == [0.0] * 4
    wrong = verify(specimen, [good], HostBench(), specimen.sweep[:1], programs=False).checks[0]
    assert wrong.verdict == "INCORRECT"
    assert wrong.relative_error is None


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "uint8"])
def test_what_is_not_written_is_found_in_every_type(dtype: str) -> None:
    specimen = Specimen("n", "counts from -1", Shape(n=9), (Shape(n=9),), 0.0)
    # In an integer type the poison is a legitimate value: the first element is written with it.
    values = np.arange(-1, 8).astype(dtype)
    specimen.inputs(lambda shape, rng: {})
    specimen.reference(lambda shape, inputs: values.astype(np.float64))
    specimen.output(lambda shape: ((shape.n,), dtype))
    specimen.variant("whole", idea="all")(lambda case: lambda: case.out.__setitem__(..., values))
    specimen.variant("part", idea="not all")(lambda case: lambda: case.out.__setitem__(slice(0, 8), values[:8]))
    whole, part = verify(specimen, specimen.variants, HostBench()).checks
    assert (whole.verdict, whole.problems) == ("ok", ())
    assert part.problems == ("not written: 1 of 9 elements, the first at [8]",)


def test_the_guards_are_wide() -> None:
    specimen, bench = planted(), HostBench()
    (good,) = specimen.pick(("1_good",))

    def far(case: Any) -> Callable[[], None]:
        def launch() -> None:
            good.prepare(case)()
            memory = case.out.base
            memory[0] = memory[-1] = 1

        return launch

    (check,) = verify(specimen, [replace(good, prepare=far)], bench, specimen.sweep[:1], programs=False).checks
    assert check.problems == (f"wrote outside the output: 2 bytes, the nearest {GUARD} bytes behind it",)


def test_the_document_follows_its_schema(result: Verification) -> None:
    document = result.to_dict()
    validate(document)
    assert export.to_json(document)
    assert document["verdicts"]["ok"] == sum(c["verdict"] == "ok" for c in document["checks"] + document["programs"])
    (nan,) = (c for c in document["checks"] if c["variant"] == "nan" and c["shape"]["rows"] == 33)
    assert nan["relative_error"] is None
    specimen = planted()
    validate(describe(specimen, specimen.variants, specimen.sweep))


def test_nothing_checked_is_not_a_pass() -> None:
    specimen = planted()
    assert not verify(specimen, [], HostBench()).ok
    assert Check("x", {}, "not run").relative_error is None
