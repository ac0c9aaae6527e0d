"""``cyinst hot`` as people and programs meet it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import BYTE, CAPTURES, ROOT, WIDE, Outcome, validate, widest

Run = Callable[..., Outcome]
REGION_FILE = ROOT / "tests" / "captures" / "trial" / "q6k.regions.toml"
KINDS = CAPTURES / "kinds.sm90.ncu-rep"
SAMPLES_ONLY, STATES_ONLY = (CAPTURES / f"{x}_only.sm90.ncu-rep" for x in ("samples", "states"))
WIDE_SAMPLES, WIDE_LOST, WIDE_INSTRUCTIONS = 85_742, 20_005, 1_248
OFFSET = re.compile(r"^[> ] +[0-9a-f]+ ")


def sparse(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out most rows and causes of a large document: validating each takes a while."""
    return document | {name: document[name][:: 1 + len(document[name]) // 60] for name in ("rows", "causes")}


def test_json_is_the_contract(run: Run) -> None:
    outcome = run("hot", WIDE, "--regions", REGION_FILE, "--gemm", "2630,3584,3584", "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    document = outcome.document
    validate(sparse(document))
    assert document["launch"]["kernel"] == "mmq_q6k"
    assert document["sm"] == 90
    assert (document["samples"], document["lost_slot_samples"]) == (WIDE_SAMPLES, WIDE_LOST)
    assert sum(r["samples"] for r in document["rows"]) == WIDE_SAMPLES
    assert sum(c["samples"] for c in document["causes"]) == pytest.approx(WIDE_SAMPLES)
    regions = {r["name"]: r for r in document["regions"]}
    assert set(regions) == {"mma", "weights", "scales", "activations", "epilogue", "(unmarked)"}
    assert sum(r["executed"] for r in regions.values()) == 465_469_368
    gmac = 2630 * 3584 * 3584 / 1e9
    assert regions["mma"]["executed_per_gmac"] == pytest.approx(regions["mma"]["executed"] / gmac)
    assert sum(r["lost_slots"]["value"] for r in regions.values()) == pytest.approx(document["no_eligible_pct"])
    top = document["causes"][0]
    assert (top["producers"][0]["region"], top["waiters"][0]["line"]) == ("weights", 51)
    assert top["lost_slots"]["standard_error"] > 0


@pytest.mark.parametrize("launch", range(6))
def test_every_launch_of_a_capture_makes_valid_json(run: Run, launch: int) -> None:
    outcome = run("hot", KINDS, "--launch", launch, "--format", "json")
    assert outcome.code == 0
    validate(outcome.document)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.ncu-rep")), ids=lambda p: p.name)
def test_every_capture_is_attributed_or_says_why_not(run: Run, path: Path) -> None:
    outcome = run("hot", path, "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    validate(outcome.document)
    assert outcome.document["rows"] or outcome.document["problems"]
    assert run("hot", path, "--format", "markdown").code == 0
    assert run("hot", path).code == 0


def test_every_corpus_report_makes_valid_json_or_one_line(run: Run, corpus_files: tuple[Path, ...]) -> None:
    for file in corpus_files:
        outcome = run("hot", file, "--format", "json")
        if outcome.code == 0:
            validate(sparse(outcome.document))
        else:
            assert outcome.code == 3
            assert outcome.err.count("\n") == 1


def test_csv_splits_the_samples_by_producer(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("hot", WIDE, "--format", "csv").out)))
    assert sum(float(r["weight"]) * int(r["samples"]) for r in rows) == pytest.approx(WIDE_SAMPLES)
    assert sum(float(r["weight"]) * int(r["lost_slot_samples"]) for r in rows) == pytest.approx(WIDE_LOST)
    top = max((r for r in rows if r["state"] == "long_scoreboard"), key=lambda r: int(r["samples"]))
    assert (top["line"], top["producer_line"], top["method"]) == ("51", "47", "scoreboard+register")
    assert top["producer_sass"].startswith("LDG.E.128")


def test_collapsed_stacks_have_five_frames_and_all_samples(run: Run) -> None:
    lines = run("hot", WIDE, "--regions", REGION_FILE, "--format", "collapsed").out.splitlines()
    total = 0
    for line in lines:
        stack, _, count = line.rpartition(" ")
        kernel, region, place, instruction, state = stack.split(";")
        assert kernel == "mmq_q6k"
        assert region in {"mma", "weights", "scales", "activations", "epilogue", "(unmarked)"}
        assert re.fullmatch(r"\S+:\d+|no line", place)
        assert re.match(r"[0-9a-f]{4,} @?\S", instruction)
        assert re.fullmatch(r"[a-z_]+", state)
        total += int(count)
    assert total == WIDE_SAMPLES


def test_speedscope_is_well_formed(run: Run) -> None:
    document = run("hot", WIDE, "--format", "speedscope").document
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (profile,) = document["profiles"]
    frames = document["shared"]["frames"]
    names = [f["name"] for f in frames]
    assert len(names) == len(set(names))
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "none", 0)
    assert len(profile["samples"]) == len(profile["weights"])
    assert {i for stack in profile["samples"] for i in stack} == set(range(len(frames)))
    assert sum(profile["weights"]) == profile["endValue"] == WIDE_SAMPLES
    assert {len(stack) for stack in profile["samples"]} == {5}


def test_markdown_has_tables(run: Run) -> None:
    text = run("hot", WIDE, "--regions", REGION_FILE, "--format", "markdown").out
    assert "| lost slots of 100 | samples | state | producer | waited for at | method |" in text
    assert "| weights | 24.2 % |" in text
    assert "| long_scoreboard | 22,972 | 100.0 % | 0.0 % | scoreboard+register 100.0 % |" in text
    width = {}
    for line in text.splitlines():
        if line.startswith("|"):
            width.setdefault(line.replace("\\|", "").count("|"), []).append(line)
    assert set(width) == {6, 7}


def test_output_appears_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "hot.json"
    assert run("hot", WIDE, "--format", "speedscope", "-o", target).code == 0
    assert json.loads(target.read_text())["exporter"] == "cyinst"
    assert run("hot", WIDE, "-o", tmp_path / "hot.txt").code == 0
    assert "long_scoreboard" in (tmp_path / "hot.txt").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hot.json", "hot.txt"]


@pytest.mark.parametrize(
    ("by", "heading", "says"),
    [
        ("cause", "Causes: producer -> where it is waited for", "-> SHF.R.U32.HI R31, RZ, R29, R14 (q6k.cu:51)"),
        ("instruction", "By instruction that waits", "5.4 ± 0.1  10.4 % long_scoreboard"),
        ("line", "By source line", "15.0 % long_scoreboard    q6k.cu:51 o = make_uint4("),
        ("region", "Regions (from inlined functions)", "stage_b"),
        ("state", "Samples by state", "short_scoreboard"),
    ],
)
def test_by_ranks_each_kind_and_state_picks_one(run: Run, by: str, heading: str, says: str) -> None:
    outcome = run("hot", WIDE, "--by", by)
    assert outcome.code == 0
    assert heading in outcome.out
    assert says in outcome.out
    barrier = run("hot", WIDE, "--by", by, "--state", "barrier")
    assert barrier.code == 0
    assert "lost to barrier on BAR.SYNC" in " ".join(barrier.out.split())
    nothing = run("hot", WIDE, "--by", by, "--state", "membar")
    assert nothing.code == 0
    for shown in (outcome.out, barrier.out, nothing.out):
        assert widest(shown) <= 80
        assert "\x1b[" not in shown
    assert nothing.out.splitlines()[-1] == "No sample of this kernel's code is in membar."


def test_the_first_sentence_names_the_culprit_and_where_it_is_waited_for(run: Run) -> None:
    out = " ".join(run("hot", WIDE, "--regions", REGION_FILE).out.split())
    assert (
        "5.3 of 100 issue slots are lost to long_scoreboard on LDG.E.128 R12, desc[UR14][R14.64] (q6k.cu:47) in "
        "weights, waited for at q6k.cu:51." in out
    )
    assert "Regions (from region file)" in out
    assert "Around the worst spot, q6k.cu:51" in out


def test_limit_is_the_number_of_rows(run: Run) -> None:
    rows = run("hot", WIDE, "--by", "instruction", "--limit", "3").out.split("largest stall)")[-1]
    assert rows.count("±") == 3


def test_around_shows_the_instructions_before_and_after(run: Run) -> None:
    for offset in ("1a50", "0x1a50", "1A50"):
        lines = [x for x in run("hot", WIDE, "--around", offset, "--limit", "2").out.splitlines() if OFFSET.match(x)]
        assert [x.split()[1 if x[0] == ">" else 0] for x in lines] == ["1a30", "1a40", "1a50", "1a60", "1a70"]
        assert lines[2].startswith(">    1a50     8934   3204   1.035 M  2 ?2 ")


def test_sass_lists_every_instruction_once_with_live_registers_and_control(run: Run) -> None:
    outcome = run("hot", WIDE, "--sass")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].split() == "offset samp. lost executed live ctl instruction".split()
    lines = [x for x in outcome.out.splitlines() if OFFSET.match(x)]
    assert [int(x.split()[0], 16) for x in lines] == [16 * n for n in range(WIDE_INSTRUCTIONS)]
    head = outcome.out.splitlines()[0]
    live, ctl, text = head.index("live"), head.index("ctl"), head.index("instruction")
    counts = [int(x[live - 1 : ctl - 1]) for x in lines]
    # The compiler gave the kernel 80 registers; at its end none is live.
    assert 70 <= max(counts) <= 80
    assert counts[-1] == 0
    waits = [x[ctl:text] for x in lines]
    assert sum("?" in x for x in waits) > 100
    assert sum("w" in x for x in waits) > 50


@pytest.mark.parametrize(("folder", "line"), [(None, ""), (CAPTURES, "if (i < n) y[i] = a * x[i] + …")])
def test_source_supplies_what_a_report_does_not_embed(run: Run, folder: Path | None, line: str) -> None:
    more = () if folder is None else ("--source", folder)
    outcome = run("hot", SAMPLES_ONLY, "--by", "line", *more)
    assert outcome.code == 0
    (row,) = [x.rstrip() for x in outcome.out.splitlines() if "90.0 % long_scoreboard" in x]
    assert row.endswith(f"fixture.cu:21 {line}".rstrip())
    assert ("if (i < n) y[i]" in outcome.out) == (folder is not None)


def test_without_no_eligible_the_share_of_samples_remains(run: Run) -> None:
    out = run("hot", SAMPLES_ONLY).out
    assert "82.4 % of the samples are lost to long_scoreboard" in out
    assert "lost issue slots not collected" in out
    document = run("hot", SAMPLES_ONLY, "--format", "json").document
    assert {r["lost_slots"] for r in document["rows"] if r["lost_slots"] is None} == {None}
    assert document["no_eligible_pct"] is None


def test_a_report_without_samples_names_the_section_that_collects_them(run: Run) -> None:
    outcome = run("hot", STATES_ONLY)
    assert outcome.code == 0
    assert "nothing can be attributed" in outcome.out
    assert "collect them with ncu --section SourceCounters" in outcome.out
    assert "no PC samples" in run("hot", STATES_ONLY, "--format", "markdown").out
    assert run("hot", STATES_ONLY, "--sass").code == 0


def test_a_launch_too_short_for_a_sample_is_no_failure(run: Run) -> None:
    for form in ("csv", "markdown", "collapsed", "speedscope"):
        assert run("hot", KINDS, "--launch", "5", "--format", form).code == 0
    assert "0 samples" in run("hot", KINDS, "--launch", "5").out


def test_of_many_launches_the_longest_is_taken_unless_one_is_named(run: Run) -> None:
    def kernel(*args: str) -> str:
        document = run("hot", KINDS, *args, "--format", "json").document
        return f"{document['launch']['index']} {document['launch']['kernel']}"

    assert kernel() == "1 widths"
    assert kernel("--launch", "4") == "4 bulk_copy"
    assert kernel("--kernel", "^mma") == "2 mma_mix"
    assert kernel("--kernel", "saxpy", "--launch", "5") == "5 saxpy"


def test_a_kernel_without_code_to_list_is_one_line(run: Run) -> None:
    outcome = run("hot", CAPTURES / "graph.sm90.ncu-rep", "--sass")
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.count("\n") == 1
    assert "no machine code to list: a graph has no code of its own" in outcome.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("nowhere.ncu-rep",), 3, "nowhere.ncu-rep: no such file"),
        ((ROOT / "pyproject.toml",), 3, "not an Nsight Compute report"),
        ((WIDE, "--around", "ffffff"), 5, "no instruction at 0xffffff; the launch has mmq_q6k (0x4e00 bytes)"),
        ((WIDE, "--around", "1a51"), 5, "no instruction at 0x1a51"),
        ((WIDE, "--around", "top"), 2, "--around takes a hexadecimal offset such as 1f40, not 'top'"),
        ((WIDE, "--regions", ROOT / "pyproject.toml"), 2, "names no [[region]]"),
        ((WIDE, "--regions", BYTE), 2, "the region file is not TOML"),
        ((WIDE, "--regions", "nowhere.toml"), 2, "does not exist"),
        ((WIDE, "--source", "nowhere"), 2, "does not exist"),
        ((WIDE, "--kernel", "("), 2, "not a regular expression"),
        ((WIDE, "--kernel", "nothing"), 5, "there are mmq_q6k (1)"),
        ((KINDS, "--launch", "9"), 5, "there is no launch 9"),
        ((WIDE, "--by", "colour"), 2, "'colour' is not one of"),
        ((WIDE, "--state", "tired"), 2, "is not one of"),
        ((WIDE, "--format", "parquet"), 2, "is not one of"),
        ((WIDE, "--limit", "0"), 2, "--limit"),
        ((WIDE, "--gemm", "1,2,3", "--gemm", "1,2,3"), 2, "once"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code_by_kind(
    run: Run, args: tuple[str | Path, ...], code: int, says: str
) -> None:
    outcome = run("hot", *args)
    assert outcome.code == code
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("launch", range(6))
def test_tables_of_small_kernels_fit_80_columns(run: Run, launch: int) -> None:
    assert widest(run("hot", KINDS, "--launch", launch).out) <= 80


def test_listings_fit_80_columns(run: Run) -> None:
    assert widest(run("hot", BYTE).out) <= 80
    assert widest(run("hot", BYTE, "--sass").out) <= 80
    assert widest(run("hot", WIDE, "--regions", REGION_FILE, "--around", "1a50").out) <= 80
