"""Specimens are found by path or name, and what is wrong with one is told in a line with file and line number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from host_bench import PLANTED

from profiler import loading
from profiler.errors import NoMatchError, SpecimenError
from profiler.loading import bundled, load_specimen, neighbour, resolve

WHOLE = """
from profiler.specimen import Shape, Specimen
SPEC = Specimen("tiny", "nothing much", Shape(n=3), (Shape(n=1),), 1e-5)
SPEC.inputs(lambda shape, rng: {})
SPEC.reference(lambda shape, inputs: None)
SPEC.output(lambda shape: ((shape.n,), "float32"))
SPEC.variant("1_one", idea="one")(lambda case: lambda: None)
SPEC.variant("2_two", idea="two")(lambda case: lambda: None)
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def one(text: str, name: str = "tiny/spec.py") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return one


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder, with a bundled folder of our own."""
    shipped = tmp_path / "shipped"
    for name in ("q6k", "examples/saxpy"):
        (shipped / name).mkdir(parents=True)
        (shipped / name / "spec.py").write_text(WHOLE.replace('"tiny"', f'"{Path(name).name}"'))
    monkeypatch.setattr(loading, "bundled_folder", lambda: shipped)
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_a_specimen_is_a_folder_or_a_file(write: Callable[..., Path]) -> None:
    file = write(WHOLE)
    for place in (file, file.parent):
        specimen, names, path = resolve(str(place))
        assert (specimen.name, names, path) == ("tiny", (), file)
    assert load_specimen(file.parent).name == load_specimen(file).name == "tiny"
    assert resolve(str(write(WHOLE, "other.py"))).specimen.name == "tiny"


def test_variants_follow_a_colon(write: Callable[..., Path]) -> None:
    file = write(WHOLE)
    assert resolve(f"{file}:1_one").names == ("1_one",)
    assert resolve(f"{file.parent}:1_one, 2,").names == ("1_one", "2")
    assert resolve(f"{file.parent}:").names == ()
    # A colon in the path is the path's.
    odd = write(WHOLE, "a:b/spec.py")
    assert resolve(str(odd.parent)).names == ()
    assert resolve(f"{odd.parent}:2").names == ("2",)


def test_a_name_is_looked_for_here_and_then_among_the_bundled(here: Path) -> None:
    assert list(bundled()) == ["examples/saxpy", "q6k"]
    chosen = resolve("q6k:2_two")
    assert (chosen.specimen.name, chosen.names) == ("q6k", ("2_two",))
    assert resolve("examples/saxpy").specimen.name == "saxpy"
    # A folder of that name without a spec is not what was meant; one with a spec is.
    (here / "q6k").mkdir()
    assert resolve("q6k").specimen.name == "q6k"
    (here / "q6k" / "spec.py").write_text(WHOLE)
    assert resolve("q6k").specimen.name == "tiny"


def test_a_miss_lists_what_is_bundled(here: Path) -> None:
    for text in ("q7k", "q7k:1", "", ":1"):
        with pytest.raises(NoMatchError) as caught:
            resolve(text)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith("bundled are examples/saxpy, q6k")


def test_an_installed_package_looks_in_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "profiler"
    (package / "specimens").mkdir(parents=True)
    monkeypatch.setattr(loading, "__file__", str(package / "loading.py"))
    assert loading.bundled_folder() == package / "specimens"
    (package / "specimens").rmdir()
    assert loading.bundled_folder() == tmp_path / "site" / "kernels"


@pytest.mark.parametrize("name", list(bundled()))
def test_every_bundled_specimen_loads(name: str) -> None:
    assert load_specimen(bundled()[name]).variants


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ndef f(:\n", ":2: SyntaxError: invalid syntax"),
        ("\tx = 1\n", ":1: IndentationError: unexpected indent"),
        ("import os\nimport no_such_module\n", ":2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return {}['k']\nf()\n", ":2: KeyError: 'k'"),
        ("raise ValueError('two\\nlines')\n", ":1: ValueError: two lines"),
        ("raise AssertionError\n", ":1: AssertionError"),
        ("import sys\nsys.exit(3)\n", ":2: SystemExit: 3"),
        ("import json\njson.loads('{')\n", ":2: JSONDecodeError: Expecting"),
        ("x = 1\n", ": binds no SPEC; a specimen says SPEC = Specimen(...)"),
        ("SPEC = 'q6k'\n", ": SPEC is a str, not a profiler.specimen.Specimen"),
        (WHOLE.replace("SPEC.output", "_ = "), ": SPEC 'tiny' lacks @SPEC.output"),
        (
            "\n".join(WHOLE.splitlines()[:3]),
            ": SPEC 'tiny' lacks @SPEC.inputs, @SPEC.reference, @SPEC.output, @SPEC.variant(...)",
        ),
        (WHOLE.replace('"2_two"', '"1_one"'), ":8: tiny: two variants are called '1_one'"),
        (WHOLE.replace('"2_two"', '"2 two"'), ":8: tiny: variant name '2 two': use letters"),
    ],
)
def test_a_broken_spec_is_told_in_one_line(write: Callable[..., Path], text: str, told: str) -> None:
    file = write(text)
    before = list(sys.path)
    with pytest.raises(SpecimenError) as caught:
        load_specimen(file.parent)
    assert str(caught.value).startswith(f"{file}{told}")
    assert "\n" not in str(caught.value)
    assert sys.path == before


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecimenError, match="there is no such specimen"):
        load_specimen(tmp_path / "nothing")


def test_a_failure_in_shared_code_is_told_where_it_is(write: Callable[..., Path]) -> None:
    shared = write("def half(n):\n    return 1 / n\n", "formats/q8.py")
    file = write("from profiler.loading import neighbour\nneighbour(__file__, '../formats/q8.py').half(0)\n" + WHOLE)
    with pytest.raises(SpecimenError, match="ZeroDivisionError") as caught:
        load_specimen(file)
    assert str(caught.value).startswith(f"{shared}:2: ")
    broken = write("x = 1\n1 / 0\n", "formats/q9.py")
    file = write("from profiler.loading import neighbour\nneighbour(__file__, '../formats/q9.py')\n" + WHOLE)
    for _ in range(2):
        # The second time too: what failed was not kept.
        with pytest.raises(SpecimenError) as caught:
            load_specimen(file)
        assert str(caught.value).startswith(f"{broken}:2: ZeroDivisionError")
    wrong = write("x = (\n", "formats/q10.py")
    file = write("from profiler.loading import neighbour\nneighbour(__file__, '../formats/q10.py')\n" + WHOLE)
    with pytest.raises(SpecimenError) as caught:
        load_specimen(file)
    assert str(caught.value).startswith(f"{wrong}:1: SyntaxError")


def test_shared_code_is_run_once_and_is_the_same_for_all(write: Callable[..., Path]) -> None:
    write("RUNS = []\nRUNS.append(1)\n", "formats/q8.py")
    text = "from profiler.loading import neighbour\nq8 = neighbour(__file__, '../formats/q8.py')\nq8.RUNS.append(2)\n"
    one, two = write(text + WHOLE, "a/spec.py"), write(text + WHOLE, "b/spec.py")
    load_specimen(one)
    load_specimen(two)
    assert neighbour(one, "../formats/q8.py") is neighbour(two, "../a/../formats/q8.py")
    assert neighbour(one, "../formats/q8.py").RUNS == [1, 2, 2]
    with pytest.raises(SpecimenError, match="there is no "):
        neighbour(one, "../formats/q9.py")


def test_dataclasses_work_in_shared_code(write: Callable[..., Path]) -> None:
    # They look their module up in sys.modules.
    file = write(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Pair:\n    a: int\n    b: 'int' = 2\n",
        "pair.py",
    )
    assert neighbour(file, "pair.py").Pair(1).b == 2


def test_a_spec_imports_from_its_own_folder_and_each_from_its_own(write: Callable[..., Path]) -> None:
    before = set(sys.modules), list(sys.path)
    for name in ("a", "b"):
        write(f"NAME = 'from_{name}'\n", f"{name}/helper.py")
        write("import helper\n" + WHOLE.replace('"tiny"', "helper.NAME"), f"{name}/spec.py")
    found = [load_specimen(write(f"# {n}", f"{n}/x.py").parent).name for n in ("a", "b")]
    assert found == ["from_a", "from_b"]
    assert "helper" not in sys.modules
    assert list(sys.path) == before[1]
    assert not {name for name in set(sys.modules) - before[0] if not name.startswith("cyinst_")}


def test_the_planted_specimen_is_one() -> None:
    assert load_specimen(PLANTED).name == "planted"
