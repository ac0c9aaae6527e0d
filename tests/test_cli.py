import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_helpers import BYTE, CAPTURES, ROOT, SCHEMAS, WIDE, validate, widest

from profiler import cli

GEMM = "2630,3584,3584"


def test_the_schemas_are_schemas_and_reject_strangers() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(AssertionError):
        validate({"schema": "cyinst.report/1", "launches": []})


def test_report_json_is_the_contract(run: Any) -> None:
    outcome = run("report", BYTE, "--gemm", GEMM, "--format", "json")
    assert outcome.code == 0
    validate(outcome.document)
    launch = outcome.document["launches"][0]
    assert launch["kernel"] == "mmq_q6k"
    assert launch["device"] == "NVIDIA H200"
    assert launch["compute_capability"] == "9.0"
    assert launch["duration_ns"] == 2246368
    assert launch["executed_instructions"] == 1312744440
    assert launch["warp_cycles_per_issued_instruction"] == pytest.approx(9.087, abs=1e-3)
    assert launch["states"]["long_scoreboard"] == pytest.approx(3.705, abs=1e-3)
    assert launch["no_eligible_pct"] == pytest.approx(37.02, abs=0.01)
    assert launch["macs"] == 33782497280
    assert launch["executed_macs"] == 34527510528
    assert launch["padding_waste_pct"] == pytest.approx(2.158, abs=1e-3)
    assert launch["opcodes"]["LDG.E.U8"] == 33718272
    assert sum(launch["states"].values()) + launch["residual_cycles"] == pytest.approx(
        launch["warp_cycles_per_issued_instruction"], abs=1e-9
    )


@pytest.mark.parametrize("name", sorted(p.name for p in CAPTURES.glob("*.ncu-rep")))
def test_every_capture_makes_valid_json(run: Any, name: str) -> None:
    outcome = run("report", CAPTURES / name, "--format", "json")
    assert outcome.code == 0
    assert outcome.err == ""
    validate(outcome.document)


def test_every_corpus_report_makes_valid_json_or_one_line(run: Any, corpus_files: list[Path]) -> None:
    for file in corpus_files:
        outcome = run("report", file, "--format", "json")
        if outcome.code == 0:
            validate(outcome.document)
        else:
            assert outcome.code == 3
            assert outcome.err.count("\n") == 1
            assert str(file) in outcome.err


def test_what_was_not_collected_is_null_and_named(run: Any) -> None:
    launch = run("report", CAPTURES / "duration_only.sm90.ncu-rep", "--format", "json").document["launches"][0]
    for name in ("states", "opcodes", "samples", "issue_slots", "no_eligible_pct", "sm_throughput_pct", "macs"):
        assert launch[name] is None, name
    assert {"SpeedOfLight", "SchedulerStats", "WarpStateStats", "SourceCounters"} <= {
        m["section"] for m in launch["not_collected"]
    }


def test_a_basic_report_is_useful_and_names_the_section_that_would_say_more(run: Any) -> None:
    outcome = run("report", CAPTURES / "basic.sm90.ncu-rep", "--kernel", "saxpy")
    assert outcome.code == 0
    assert "--section WarpStateStats" in outcome.out
    assert "Too small to fill the GPU" in outcome.out or "ran at" in outcome.out


def test_compare_json_is_the_contract_and_closes(run: Any) -> None:
    outcome = run("compare", BYTE, WIDE, "--format", "json")
    document = outcome.document
    validate(document)
    assert document["schema"] == "cyinst.compare/1"
    assert document["delta_ns"] == -1493952
    total = sum(t["delta_ns"] for t in document["terms"]) + document["remainder_ns"]
    assert total == pytest.approx(document["delta_ns"], abs=1e-4)
    assert document["refusals"] == []


DEMO_REGIONS = ("--hot", "--regions", ROOT / "tests" / "captures" / "trial" / "q6k.regions.toml")


def test_compare_hot_json_is_the_contract_and_closes(run: Any) -> None:
    assert run("compare", BYTE, WIDE, "--format", "json").document["by_region"] is None
    document = run("compare", BYTE, WIDE, *DEMO_REGIONS, "--format", "json").document
    validate(document)
    found = document["by_region"]
    assert found["absent"] == []
    factors = {t["factor"]: t["delta_ns"] for t in document["factors"]}
    assert sum(t["delta_ns"] for t in found["instructions"]) == pytest.approx(factors["instructions"], rel=1e-9)
    assert found["instructions"][0]["region"] == "weights"
    terms = {t["detail"]: t["delta_ns"] for t in document["terms"] if t["factor"] == "cy/inst"}
    for leaves in (found["producers"], found["producer_kinds"]):
        total = sum(t["delta_ns"]["value"] for t in leaves if t["state"] == "long_scoreboard")
        assert total == pytest.approx(terms["long_scoreboard"], rel=1e-9)
    assert {a["region"]: a["only_before"] for a in found["alignment"]}["weights"] > 0
    assert "of which weights -63.3 %" in document["sentence"]


def test_compare_hot_names_what_a_side_lacks(run: Any) -> None:
    bare = CAPTURES / "states_only.sm90.ncu-rep"
    document = run("compare", bare, bare, "--hot", "--format", "json").document
    validate(document)
    found = document["by_region"]
    assert found["instructions"] is None
    assert found["producers"] is None
    assert {a["quantity"] for a in found["absent"]} == {"instructions by region", "cy/inst by producer"}


def test_compare_hot_explains_the_pairs_that_are_shown_and_skips_refused_ones(run: Any) -> None:
    kinds = CAPTURES / "kinds.sm90.ncu-rep"
    document = run("compare", kinds, kinds, "--hot", "--limit", "2", "--format", "json").document
    validate(document)
    assert sum(c["by_region"] is not None for c in document["comparisons"]) == 2
    refused = run(
        "compare", kinds, CAPTURES / "cache_none.sm90.ncu-rep", "--launch", "0:0", "--hot", "--format", "json"
    )
    assert refused.code == 4
    validate(refused.document)
    assert refused.document["by_region"] is None


def test_compare_hot_leaves_the_rows_of_csv_as_they_are(run: Any) -> None:
    plain, hot = (run("compare", BYTE, WIDE, *more, "--format", "csv").out for more in ((), DEMO_REGIONS))
    assert plain == hot


def test_compare_hot_markdown_has_the_regions(run: Any) -> None:
    out = run("compare", BYTE, WIDE, *DEMO_REGIONS, "--format", "markdown").out
    assert "| weights | 934.7 M | 103.5 M |" in out
    assert "| long_scoreboard | weights | global load |" in out


def test_several_pairs_come_as_a_set_with_the_unpaired(run: Any) -> None:
    kinds = CAPTURES / "kinds.sm90.ncu-rep"
    document = run("compare", kinds, kinds, "--format", "json").document
    validate(document)
    assert len(document["comparisons"]) == 6
    document = run("compare", kinds, CAPTURES / "states_only.sm90.ncu-rep", "--format", "json").document
    validate(document)
    assert [x["index"] for x in document["unpaired_before"]] == [1, 2, 3, 4, 5]


def test_a_refused_pair_exits_4_and_force_explains_it(run: Any) -> None:
    args = ("compare", CAPTURES / "kinds.sm90.ncu-rep", CAPTURES / "cache_none.sm90.ncu-rep", "--launch", "0:0")
    refused = run(*args, "--format", "json")
    assert refused.code == 4
    validate(refused.document)
    assert refused.document["terms"] == []
    assert [r["rule"] for r in refused.document["refusals"]] == ["cache_control"]
    assert refused.err.count("\n") == 1
    forced = run(*args, "--format", "json", "--force")
    assert forced.code == 0
    assert forced.document["terms"]
    assert forced.document["refusals"]


def test_per_work_divides_by_the_work_of_each_side(run: Any) -> None:
    args = ("compare", BYTE, WIDE, "--gemm", GEMM, "--gemm", "2630,3584,1792")
    assert run(*args).code == 4
    document = run(*args, "--per-work", "--format", "json").document
    validate(document)
    assert document["per_work"] is True
    assert document["after_ns"] == pytest.approx(2 * 752416 / 33.78249728)


@pytest.mark.parametrize(
    "args",
    [
        ("report", BYTE, "--gemm", GEMM),
        ("report", CAPTURES / "basic.sm90.ncu-rep"),
        ("report", CAPTURES / "kinds.sm90.ncu-rep", "--details"),
        ("compare", BYTE, WIDE),
        ("compare", BYTE, WIDE, "--hot", "--regions", ROOT / "tests" / "captures" / "trial" / "q6k.regions.toml"),
        ("compare", BYTE, WIDE, "--hot"),
        ("compare", CAPTURES / "kinds.sm90.ncu-rep", CAPTURES / "kinds.sm90.ncu-rep"),
        ("demo",),
    ],
)
def test_tables_fit_80_columns_and_need_no_colour(run: Any, args: tuple[str | Path, ...]) -> None:
    outcome = run(*args)
    assert outcome.code == 0
    lines = [x for x in outcome.out.splitlines() if not x.startswith("$ ")]
    assert widest("\n".join(lines)) <= 80
    assert "\x1b[" not in outcome.out


def test_the_report_leads_with_what_bounds_the_launch(run: Any) -> None:
    lines = run("report", BYTE).out.splitlines()
    assert any(x.startswith("Latency bound: 37.0 of 100 issue slots were empty, 21.1 of them in") for x in lines[:6])


def test_the_demo_prints_the_change_and_why(run: Any) -> None:
    out = " ".join(run("demo").out.split())
    assert "-50.8 %, 2.03x faster: less waiting per instruction (-30.6 %)" in out
    for number in ("1,148.4 us", "564.7 us", "1.765 -> 0.340", "global load 8 bit 34.77 M -> 1.054 M"):
        assert number in out


def test_many_launches_get_a_row_each_before_the_details(run: Any) -> None:
    out = run("report", CAPTURES / "kinds.sm90.ncu-rep").out
    rows = [
        out.index(f"{i} {name}") for i, name in enumerate(("saxpy", "widths", "mma_mix", "local_array", "bulk_copy"))
    ]
    assert rows == sorted(rows)
    assert rows[-1] < out.index("Of 100 issue slots")
    assert out.count("Of 100 issue slots") == 1
    assert run("report", CAPTURES / "kinds.sm90.ncu-rep", "--details").out.count("Of 100 issue slots") == 6


def test_limit_keeps_the_longest_launches(run: Any) -> None:
    document = run("report", CAPTURES / "kinds.sm90.ncu-rep", "--limit", "2", "--format", "json").document
    assert [x["kernel"] for x in document["launches"]] == ["saxpy", "widths"]


def test_csv_has_every_number_of_the_books(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(run("report", BYTE, "--format", "csv").out)))
    by_name = {(r["group"], r["name"]): r for r in rows}
    assert float(by_name["states", "long_scoreboard"]["value"]) == pytest.approx(3.705, abs=1e-3)
    assert by_name["states", "long_scoreboard"]["basis"] == "counted"
    sampled = by_name["issue slots", "lost to long_scoreboard"]
    assert sampled["basis"] == "sampled"
    assert float(sampled["standard_error"]) > 0
    terms = list(csv.DictReader(io.StringIO(run("compare", BYTE, WIDE, "--format", "csv").out)))
    assert sum(float(r["delta_ns"]) for r in terms) == pytest.approx(-1493952)


def test_markdown_is_a_table_with_the_sentence(run: Any) -> None:
    text = run("compare", BYTE, WIDE, "--format", "markdown").out
    assert "-66.5 %" in text
    assert "| **instructions** |" in text
    report = run("report", BYTE, "--format", "markdown").out
    assert "| long_scoreboard | 3.705 |" in report


def test_parquet_round_trips(run: Any, tmp_path: Path) -> None:
    import pandas as pd

    target = tmp_path / "books.parquet"
    assert run("report", BYTE, "--format", "parquet", "-o", target).code == 0
    frame = pd.read_parquet(target)
    value = frame[(frame["group"] == "states") & (frame["name"] == "long_scoreboard")]["value"].item()
    assert value == pytest.approx(3.705, abs=1e-3)
    assert run("compare", BYTE, WIDE, "--format", "parquet", "-o", tmp_path / "c.parquet").code == 0
    assert pd.read_parquet(tmp_path / "c.parquet")["delta_ns"].sum() == pytest.approx(-1493952)


def test_output_appears_whole_or_not_at_all(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert run("report", BYTE, "--format", "json", "-o", target).code == 0
    assert json.loads(target.read_text())["schema"] == "cyinst.report/1"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    outcome = run("report", BYTE, "--format", "json", "-o", tmp_path / "no" / "such" / "folder.json")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("report", "nowhere.ncu-rep"), 3, "nowhere.ncu-rep: no such file"),
        (("report", ROOT), 3, "is a folder"),
        (("report", ROOT / "pyproject.toml"), 3, "not an Nsight Compute report"),
        (("report", BYTE, "--kernel", "nothing"), 5, "there are mmq_q6k (1)"),
        (("report", BYTE, "--kernel", "("), 2, "not a regular expression"),
        (("report", BYTE, "--launch", "7"), 5, "there is no launch 7; there are 0"),
        (("report", BYTE, "--gemm", "1,2"), 2, "M,N,K"),
        (("report", BYTE, "--macs", "many"), 2, "--macs takes a number"),
        (("report", BYTE, "--macs", "-1"), 2, "positive"),
        (("report", BYTE, "--macs", "nan"), 2, "positive"),
        (("report", BYTE, "--macs", "1e9", "--gemm", GEMM), 2, "give one of them"),
        (("report", BYTE, "--format", "parquet"), 2, "--output"),
        (("report", BYTE, "--format", "xml"), 2, "'xml' is not one of"),
        (("report",), 2, "Missing argument"),
        (("compare", BYTE, WIDE, "--launch", "x"), 2, "A:B"),
        (("compare", BYTE, WIDE, "--per-work"), 2, "--per-work needs"),
        (("compare", BYTE, WIDE, "--regions", ROOT / "pyproject.toml"), 2, "add --hot"),
        (("compare", BYTE, WIDE, "--hot", "--regions", ROOT / "pyproject.toml"), 2, "names no [[region]]"),
        (("compare", BYTE, WIDE, "--pair", "nvtx"), 5, "--launch A:B"),
        (("compare", BYTE, "nowhere.ncu-rep"), 3, "nowhere.ncu-rep"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code_by_kind(
    run: Any, args: tuple[str | Path, ...], code: int, says: str
) -> None:
    outcome = run(*args)
    assert outcome.code == code
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def test_the_function_name_is_matched_not_the_template_arguments(run: Any) -> None:
    assert run("report", CAPTURES / "kinds.sm90.ncu-rep", "--kernel", "float").code == 5


def fresh(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profiler.cli", *map(str, args)],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip


def test_help_imports_neither_the_reader_nor_drawing() -> None:
    code = (
        "import sys; sys.argv=['cyinst','--help']\n"
        "from profiler import cli\n"
        "try: cli.main()\n"
        "finally:\n"
        " heavy={'pandas','numpy','rich','ncu_report','google.protobuf','profiler.ncu_parse'} & set(sys.modules)\n"
        " assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for name in cli.COMMANDS:
        assert name in done.stdout


def test_report_needs_no_pandas() -> None:
    code = (
        "import sys; sys.modules['pandas']=None\n"
        f"sys.argv=['cyinst','report',{str(BYTE)!r},'--format','json']\n"
        "from profiler import cli; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_an_ascii_terminal_gets_ascii_bars() -> None:
    done = fresh("demo", PYTHONIOENCODING="ascii:replace", COLUMNS="80")
    assert done.returncode == 0
    assert "█" not in done.stdout
    assert "###" in done.stdout


def test_a_closed_pipe_is_no_failure() -> None:
    done = subprocess.run(
        f"{sys.executable} -m profiler.cli report {BYTE} --format json | head -1",
        shell=True, capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr


def test_a_shadowing_package_in_the_working_folder_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "profiler").mkdir()
    (tmp_path / "profiler" / "__init__.py").write_text("raise RuntimeError('wrong profiler')")
    script = Path(sys.executable).parent / "cyinst"
    done = subprocess.run([str(script), "report", str(BYTE)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
