"""``cyinst verify`` and ``cyinst launch``: tables, documents, exit codes; what needs no GPU works without one."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Outcome, validate, widest
from host_bench import PLANTED, HostBench

from profiler import launch
from profiler.cli import COMMANDS

Run = Callable[..., Outcome]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[HostBench]:
    """NumPy in the place of the GPU; the benches that were opened."""
    opened: list[HostBench] = []

    def open_one(split_waits: str | None = None) -> HostBench:
        opened.append(HostBench())
        return opened[-1]

    monkeypatch.setattr(launch, "Bench", open_one)
    return opened


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.mark.usefixtures("host")
def test_all_is_well_in_a_table(run: Run) -> None:
    done = run("verify", f"{PLANTED}:1_good,2_twin,3_returned,witness")
    assert (done.code, done.err) == (0, "")
    assert widest(done.out) <= 80
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.strip()}
    assert rows["planted"] == "planted host seed 0, shapes rows x cols x pitch".split()
    assert rows["variant"] == "variant shapes worst error at bits path memory programs".split()
    assert rows["1_good"][1:3] == ["4/4", rows["2_twin"][2]]
    assert rows["1_good"][4:7] == ["all", "-", "-"]
    assert rows["2_twin"][4:8] == ["=", "1_good", "-", "396"]
    assert rows["witness"][4:7] == ["-", "ok", "-"]
    assert rows["2_twin"][-2:] == rows["1_good"][-2:]
    assert done.out.splitlines()[-1] == "all 20 checks passed"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("unwritten", "INCORRECT unwritten at 1x8x8: not written: 1 of 8 elements, the first at [0, 7]"),
        ("behind", "INCORRECT behind at 1x8x8: wrote outside the output: 4 bytes, the nearest 1 byte behind it"),
        ("raises", "luck (and at 3 more)"),
        ("wrong_gate", "INVALID wrong_gate at 5x7x16: the path promised did not run: the witness is 0, not 1"),
        ("racy", "INCORRECT racy at 1x8x8: not deterministic: a second launch gave other bits: 1 of 8 elements"),
    ],
)
def test_a_defect_is_a_line_and_exit_code_seven(run: Run, name: str, line: str) -> None:
    done = run("verify", f"{PLANTED}:{name}", "--no-programs")
    assert done.code == 7
    assert line in " ".join(done.out.split())
    assert done.err.startswith("cyinst: planted: ")
    assert done.err.count("\n") == 1
    assert "of 4 checks passed: " in done.err


@pytest.mark.usefixtures("host")
def test_bits_that_differ_show_in_the_table_and_below(run: Run) -> None:
    done = run("verify", f"{PLANTED}:1_good,other_bits", "--no-programs")
    assert done.code == 7
    (row,) = (line for line in done.out.splitlines() if line.startswith("other_bits"))
    assert " 0/4 " in row
    assert " differ " in row
    assert "bits differ from 1_good at rows=1 cols=8 pitch=8: 1 of 8 elements" in " ".join(done.out.split())
    assert done.err == "cyinst: planted: 4 of 8 checks passed: 4 INCORRECT\n"


@pytest.mark.usefixtures("host")
def test_shapes_seed_and_programs_are_chosen(run: Run) -> None:
    done = run(
        "verify", f"{PLANTED}:1_good", "--shape", "2x3x4", "--shape", "rows=9", "--seed", "5", "--format", "json"
    )
    assert done.code == 0
    document = done.document
    validate(document)
    assert [c["shape"] for c in document["checks"]] == [
        {"rows": 2, "cols": 3, "pitch": 4}, {"rows": 9, "cols": 7, "pitch": 8},
    ]  # fmt: skip
    assert document["seed"] == 5
    assert [p["program"] for p in document["programs"]] == ["twice"]
    done = run("verify", f"{PLANTED}:1_good", "--no-programs", "--format", "json")
    assert done.document["programs"] == []
    assert len(done.document["checks"]) == 4


@pytest.mark.usefixtures("host")
def test_a_failure_is_in_every_format(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "parity.json"
    done = run("verify", str(PLANTED), "--format", "json", "--output", target)
    assert (done.code, done.out) == (7, "")
    document = json.loads(target.read_text())
    validate(document)
    assert document["ok"] is False
    assert {v["name"]: v["bit_equal"] for v in document["variants"]}["2_twin"] == "all"
    done = run("verify", f"{PLANTED}:1_good,nan", "--format", "markdown", "--no-programs")
    assert done.code == 7
    assert "| 1_good | 4/4 | " in done.out
    assert "- INCORRECT nan at 1x8x8: NaN: 1 of 8 elements, the first at [0, 1]" in done.out


@pytest.mark.usefixtures("host")
def test_many_failures_of_a_variant_are_cut_short(run: Run) -> None:
    sweep = [word for n in range(3, 10) for word in ("--shape", f"{n}x{n}x16")]
    done = run("verify", f"{PLANTED}:unwritten", "--no-programs", *sweep)
    assert done.out.count("INCORRECT unwritten at") == 4
    assert "3 more of unwritten; --format json has them all" in done.out


def test_a_lost_context_says_how_much_did_not_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = HostBench()
    monkeypatch.setattr(launch, "Bench", lambda **options: bench)
    shutil.copy(PLANTED / "spec.py", tmp_path / "spec.py")
    with (tmp_path / "spec.py").open("a") as spec:
        spec.write(
            "\n@SPEC.variant('fatal', idea='loses the context')\ndef fatal(case):\n"
            "    return lambda: setattr(case._device, 'dead', True)\n"
        )
    done = run("verify", f"{tmp_path}:fatal,1_good")
    assert done.code == 7
    assert done.err == "cyinst: planted: 0 of 10 checks passed: 1 INVALID, 9 not run\n"
    assert "not run 9 checks: the CUDA context was lost" in done.out


@pytest.mark.usefixtures("no_cupy")
def test_the_list_needs_no_gpu(run: Run) -> None:
    done = run("verify", str(PLANTED), "--list")
    assert done.code == 0
    assert widest(done.out) <= 80
    text = " ".join(done.out.split())
    assert "2_twin all the same bits, by a plane" in text
    assert "4 shapes (rows x cols x pitch): 1x8x8, 5x7x8, 5x7x16, 33x3x4" in text
    assert "programs: twice" in text
    done = run("verify", f"{PLANTED}:2_twin", "--list", "--format", "json")
    validate(done.document)
    assert [v["name"] for v in done.document["variants"]] == ["2_twin"]
    assert (
        "| 2_twin | all | the same bits, by a plane |"
        in run("verify", str(PLANTED), "--list", "--format", "markdown").out
    )


@pytest.mark.usefixtures("no_cupy")
@pytest.mark.parametrize("command", ["verify", "launch"])
def test_without_a_gpu_one_line_says_so(run: Run, command: str) -> None:
    done = run(command, f"{PLANTED}:1_good")
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("cyinst: launching needs CuPy")
    assert done.err.count("\n") == 1


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["verify", "no_such"], 5, "'no_such': no specimen"),
        (["verify", f"{PLANTED}:nothing"], 5, "planted: no variant is called 'nothing'; it has 1_good"),
        (["verify", f"{PLANTED}", "--shape", "1x2"], 7, "planted: "),
        (["verify", f"{PLANTED}", "--shape", "1x2x3x4"], 2, "--shape '1x2x3x4': planted has 3 sizes"),
        (["verify", f"{PLANTED}:1_good", "--shape", "2x9x4"], 8, "planted at rows=2 cols=9 pitch=4: inputs fails"),
        (["launch", f"{PLANTED}:1_good", "--shape", "2x9x4"], 8, "planted at rows=2 cols=9 pitch=4: inputs fails"),
        (["launch", f"{PLANTED}:1_good,nothing"], 5, "planted: no variant is called 'nothing'"),
        (["launch", f"{PLANTED}:raises"], 8, "planted.raises at rows=5 cols=7 pitch=8: spec.py:"),
        (["launch", f"{PLANTED}:1_good", "--repeat", "0"], 2, "Invalid value for '--repeat'"),
    ],
)
def test_what_cannot_be_done_is_one_line(run: Run, args: list[str], code: int, told: str) -> None:
    done = run(*args)
    assert done.code == code
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_spec_that_does_not_load_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text("import this_is_no_module\n")
    done = run("verify", tmp_path, "--list")
    assert (done.code, done.out) == (8, "")
    assert done.err == f"cyinst: {tmp_path}/spec.py:1: ModuleNotFoundError: No module named 'this_is_no_module'\n"


def test_launch_takes_several_variants_each_in_its_range(run: Run, host: list[HostBench]) -> None:
    done = run("launch", f"{PLANTED}:1_good,2_twin", "--warmup", 0)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 2
    for line, name in zip(lines, ("1_good", "2_twin"), strict=True):
        assert f"planted:{name}" in line
        assert line.endswith(f"cyinst@planted.{name}/")


def test_launch_says_what_ran_and_how_to_capture_it(run: Run, host: list[HostBench]) -> None:
    done = run("launch", f"{PLANTED}:fast", "--warmup", "2", "--repeat", "3", "--shape", "4x5x8")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "3 launches of planted:fast (rows=4 cols=5 pitch=8); kernels fast; 2e-08 GMAC each; host; "
        "capture with ncu --nvtx --nvtx-include cyinst@planted.fast/\n"
    )
    assert host[0].calls == [("fast", (4,), (32,), 0)] * 5


def test_warm_ups_lie_outside_the_range(run: Run, host: list[HostBench], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    plain: Any = launch.annotate
    monkeypatch.setattr(launch, "annotate", lambda name: seen.append(name) or plain(name))
    assert run("launch", f"{PLANTED}:1_good").code == 0
    assert len(host) == 1
    assert seen == ["planted.1_good.prepare", *["planted.1_good.warm_up"] * 3, "planted.1_good"]


def test_the_commands_are_listed() -> None:
    assert {"verify", "launch"} <= set(COMMANDS)
