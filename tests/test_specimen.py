"""Names, shapes and declarations of a specimen; no GPU, nothing heavy."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.errors import NoMatchError, SpecimenError, UsageError
from profiler.specimen import Shape, Specimen

SIZES = ("tokens", "rows", "k")


def made(**more: Any) -> Specimen:
    shape = Shape(tokens=2630, rows=3584, k=3584)
    return Specimen("gemm", "a product", shape, (shape.but(tokens=3),), 1e-5, **more)


def with_variants(*names: str) -> Specimen:
    specimen = made()
    for name in names:
        specimen.variant(name, idea="none")(lambda case: lambda: None)
    return specimen


sizes = st.integers(min_value=1, max_value=2**31)


@given(tokens=sizes, rows=sizes, k=sizes, joint=st.sampled_from(["x", ",", " ", ", "]))
def test_numbers_in_order_make_a_shape(tokens: int, rows: int, k: int, joint: str) -> None:
    shape = made().shape_from(joint.join(map(str, (tokens, rows, k))))
    assert shape == {"tokens": tokens, "rows": rows, "k": k}
    assert list(shape) == list(SIZES)


@given(chosen=st.dictionaries(st.sampled_from(SIZES), sizes, min_size=1), joint=st.sampled_from([",", " ", ", "]))
def test_named_sizes_replace_those_of_the_default(chosen: dict[str, int], joint: str) -> None:
    specimen = made()
    shape = specimen.shape_from(joint.join(f"{name}={size}" for name, size in chosen.items()))
    assert shape == {**specimen.shape, **chosen}
    assert list(shape) == list(SIZES)
    assert specimen.shape_from(str(shape)) == shape


@given(text=st.text(min_size=1, max_size=24))
def test_whatever_is_typed_is_a_shape_or_a_usage_error(text: str) -> None:
    try:
        shape = made().shape_from(text)
    except UsageError:
        return
    assert list(shape) == list(SIZES)
    assert all(type(size) is int and size >= 1 for size in shape.values())


@pytest.mark.parametrize(
    "text",
    ["1x2x3x4", "0x1x1", "-1", "tokens=0", "width=3", "tokens=", "512x", "x", "1.5", "tokens=1,tokens=2", "=3", " "],
)
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shape"):
        made().shape_from(text)


def test_no_shape_asked_for_is_the_default() -> None:
    assert made().shape_from(None) == made().shape_from("") == {"tokens": 2630, "rows": 3584, "k": 3584}


def test_a_shape_reads_as_attributes_and_survives_copies() -> None:
    shape = Shape(tokens=3, k=256)
    assert (shape.tokens, shape.k) == (3, 256)
    with pytest.raises(AttributeError, match="rows"):
        _ = shape.rows
    assert shape.but(k=512) == {"tokens": 3, "k": 512}
    assert shape == {"tokens": 3, "k": 256}
    for other in (copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert other == shape
        assert isinstance(other, Shape)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a@b", "a]", "-x", "a,b", "ä", "a\n"])
def test_names_that_a_filter_would_misread_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="use letters"):
        Specimen(name, "", Shape(n=1), (), 0.0)
    with pytest.raises(UsageError, match="use letters"):
        made().variant(name, idea="")


def test_two_variants_of_a_name_and_two_references_are_refused() -> None:
    specimen = with_variants("1_x")
    with pytest.raises(UsageError, match="two variants are called '1_x'"):
        specimen.variant("1_x", idea="")
    specimen.reference(lambda shape, inputs: np.zeros(1))
    with pytest.raises(UsageError, match="reference is declared twice"):
        specimen.reference(lambda shape, inputs: np.zeros(1))


def test_a_sweep_of_other_sizes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the sweep's shape \(k=1\) has other sizes"):
        Specimen("x", "", Shape(n=1), (Shape(k=1),), 0.0)


def test_variants_are_picked_by_name_or_by_an_unambiguous_beginning() -> None:
    specimen = with_variants("1_bytes", "1_bytes_more", "2_double", "3_three")

    def picked(*names: str) -> list[str]:
        return [variant.name for variant in specimen.pick(names)]

    assert picked() == ["1_bytes", "1_bytes_more", "2_double", "3_three"]
    assert picked("3", "2_double", "2") == ["3_three", "2_double"]
    assert picked("1_bytes") == ["1_bytes"]
    with pytest.raises(NoMatchError, match="several variants begin with '1'; it has 1_bytes, 1_bytes_more"):
        picked("1")
    with pytest.raises(NoMatchError, match="no variant is called 'x'; it has 1_bytes, 1_bytes_more, 2_double, 3_three"):
        picked("x")


def test_inputs_depend_on_the_seed_alone() -> None:
    specimen = made()
    specimen.inputs(lambda shape, rng: {"x": rng.integers(0, 1 << 30, shape.tokens)})
    small, other = Shape(tokens=5, rows=1, k=1), Shape(tokens=5, rows=1, k=9)
    assert (specimen.make_inputs(small, 7)["x"] == specimen.make_inputs(other, 7)["x"]).all()
    assert (specimen.make_inputs(small, 7)["x"] != specimen.make_inputs(small, 8)["x"]).any()


def test_what_a_spec_raises_names_part_and_shape() -> None:
    def refuse(shape: Shape, rng: Any) -> Any:
        raise UsageError("k must be a multiple of 256")

    specimen = made()
    specimen.inputs(refuse)
    specimen.output(lambda shape: ((1,), {}["dtype"]))
    with pytest.raises(SpecimenError, match=r"^gemm at tokens=3 .*: inputs fails: k must be a multiple of 256$"):
        specimen.make_inputs(specimen.sweep[0])
    with pytest.raises(SpecimenError, match=r"output fails: KeyError: 'dtype'$"):
        specimen.output_of(specimen.sweep[0])


def test_the_room_imports_nothing_heavy() -> None:
    code = "import sys, profiler.specimen, profiler.loading, profiler.ranges, profiler.launch, profiler.verify; " \
        "print(sorted({'numpy', 'cupy', 'nvtx', 'pandas', 'torch', 'rich'} & set(sys.modules)))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
