"""Plans and command lines: what ncu is asked for, word by word."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import CAPTURES

from profiler import vocabulary as v
from profiler.errors import NoMatchError, UsageError
from profiler.ncu_command import Request, command_line, nvtx_filters
from profiler.ncu_parse import load
from profiler.plans import FOLDER, PLANS, missing, plan_named, section_file
from profiler.specimen import NAME

QUICK = Request(("./a", "--size", "12"), PLANS["quick"])
SECTIONS = f"--section-folder {FOLDER} --section CyinstQuick"
PLAIN = (
    "ncu --force-overwrite --export out/step --launch-count 1{which} --nvtx{filters} --target-processes all "
    "--import-source yes --replay-mode {replay} --clock-control {clock} --cache-control {cache} {plan} ./a --size 12"
)


def golden(
    which: str = "", filters: str = "", replay: str = "kernel", clock: str = "none", cache: str = "all", plan: str = ""
) -> list[str]:
    filled = PLAIN.format(which=which, filters=filters, replay=replay, clock=clock, cache=cache, plan=plan or SECTIONS)
    return shlex.split(filled)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (QUICK, golden()),
        (replace(QUICK, skip=3), golden(which=" --launch-skip 3")),
        (
            replace(QUICK, kernel="gemm|mma"),
            golden(filters=" --kernel-name-base function --kernel-name 'regex:gemm|mma'"),
        ),
        (replace(QUICK, nvtx="cyinst@q6k.4_wide/"), golden(filters=" --nvtx-include cyinst@q6k.4_wide/")),
        (
            replace(QUICK, nvtx="step"),
            golden(filters="".join(f" --nvtx-include {x}" for x in ("cyinst@step/", "cyinst@step", "step/", "step"))),
        ),
        (replace(QUICK, replay="application"), golden(replay="application")),
        (replace(QUICK, clock_control="base", cache_control="none"), golden(clock="base", cache="none")),
        (replace(QUICK, interval=5), golden(plan=f"{SECTIONS} --warp-sampling-interval 5")),
        (replace(QUICK, metrics=("a__b.sum", "c")), golden(plan=f"{SECTIONS} --metrics a__b.sum,c")),
        (replace(QUICK, plan=PLANS["books"]), golden(plan=f"{SECTIONS} --section CyinstBooks")),
        (
            replace(QUICK, plan=PLANS["full"], metrics=("c",)),
            golden(plan=f"--set full --metrics {','.join(PLANS['full'].metrics)},c"),
        ),
    ],
    ids="plain skip kernel specimen_range range replay conditions interval metrics books full".split(),
)
def test_command_lines(request_: Request, words: list[str]) -> None:
    assert command_line("ncu", request_, Path("out/step.ncu-rep")) == words


def test_ncu_reads_no_macro_in_a_file_name() -> None:
    words = command_line("ncu", QUICK, Path("50%p/a.ncu-rep"))
    assert words[words.index("--export") + 1] == "50%%p/a"


def test_what_the_recorded_command_line_says_is_read_back() -> None:
    from profiler.container import parse_ncu_options

    request = replace(QUICK, kernel="alpha", clock_control="base", cache_control="none", replay="application", skip=2)
    assert parse_ncu_options(" ".join(command_line("ncu", request, Path("x.ncu-rep")))) == {
        "--clock-control": "base", "--cache-control": "none", "--replay-mode": "application", "--import-source": "yes",
    }  # fmt: skip


def test_a_domain_or_a_kind_that_is_given_is_kept() -> None:
    assert nvtx_filters("mine@step") == ("mine@step/", "mine@step")
    assert nvtx_filters("mine@step/") == ("mine@step/",)
    assert nvtx_filters("a/*/b]") == ("a/*/b]",)
    assert replace(QUICK, nvtx="mine@step").range_name == ("mine", "step")
    assert replace(QUICK, nvtx="step/").range_name == (None, "step")
    assert replace(QUICK, nvtx="a/*/b]").range_name is None
    assert NAME.fullmatch("q6k.4_wide")


def test_malformed_requests() -> None:
    with pytest.raises(UsageError, match="--kernel '\\(' is not a regular expression"):
        Request(("./a",), PLANS["quick"], kernel="(")
    with pytest.raises(UsageError, match="no program"):
        Request((), PLANS["quick"])
    with pytest.raises(NoMatchError, match="there are quick, books, full"):
        plan_named("everything")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.section")), ids=lambda p: p.stem)
def test_section_files_are_well_formed_and_name_known_metrics(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert f'Identifier: "{file.stem}"\n' in text
    bare = re.sub(r'"[^"\n]*"', "", text)
    assert '"' not in bare
    assert bare.count("{") == bare.count("}")
    # What ncu's own section files of 2025.3 are made of; it refuses a file with anything else.
    words = set(re.findall(r"[A-Za-z]\w*", bare))
    assert words <= {
        "Identifier", "DisplayName", "Description", "Order", "Header", "Metrics", "Label", "Name", "Body", "Items",
        "SetDefault", "BarChart", "SortKey", "SortDirection", "ByValue", "Descending", "CategoryAxis", "ValueAxis",
        "ShowInstances", "SourceMetrics", "Filter", "MinArch", "MaxArch", "CC_90", "true",
    }  # fmt: skip
    known = v.metrics_for_attribution()
    groups = {"group:smsp__pcsamp_warp_stall_reasons", "group:smsp__pcsamp_warp_stall_reasons_not_issued"}
    names = re.findall(r'\bName: "([^"]+)"', text)
    assert set(names) <= known | groups
    assert len(set(names)) == len(names)


def test_the_books_plan_closes_the_books() -> None:
    """What the account calls not collected on a full report's metrics, a books capture has."""
    from profiler.accounting import account
    from profiler.model import LaunchProfile

    launch: LaunchProfile = load(CAPTURES / "kinds.sm90.ncu-rep", sources=False).launches[0]
    wanted = set(PLANS["books"].wanted((9, 0)))
    kept = {n: m for n, m in launch.metrics.items() if n in wanted or "__pcsamp_" in n or n.startswith("device__")}
    books = account(replace(launch, metrics=kept))
    # kinds was captured by other sections: it has the clock under an alias, and no plain averages of cycles.
    other = {v.CLOCK.label, v.ELAPSED_CYCLES.label, v.ACTIVE_CYCLES.label, v.MEMORY_THROUGHPUT.label}
    assert {m.quantity for m in books.not_collected} <= other
    assert set(books.states) == set(v.states_of(9, 0))


def test_states_that_an_architecture_has_not_are_not_missed() -> None:
    def states(architecture: tuple[int, int] | None) -> set[str]:
        return {n for n in PLANS["books"].wanted(architecture) if "issue_stalled" in n}

    for architecture in ((7, 5), (9, 0), (10, 0), (12, 0)):
        assert states(architecture) == {s.counted_metric for s in v.states_of(*architecture)}
    assert len(states(None)) == len(v.WarpState)


def test_a_quick_report_has_everything_that_quick_asks_for() -> None:
    launch = load(Path(__file__).parent / "data" / "quick.sm90.ncu-rep", instances=False, sources=False).launches[0]
    assert missing(PLANS["quick"].wanted((9, 0)), tuple(launch.metrics)) == ()
    assert launch.number(v.PASSES) == 4
    lacks = missing(PLANS["books"].wanted((9, 0)), tuple(launch.metrics))
    assert v.SM_THROUGHPUT.name in lacks
    assert v.WarpState.WAIT.counted_metric in lacks


def test_expressions_are_not_missed() -> None:
    assert missing(("group:x", "regex:^a", "breakdown:b", "c", "d__e.sum"), ("d__e.sum",)) == ("c",)


def test_sections_travel_with_the_package() -> None:
    assert section_file("CyinstQuick").parent.name == "sections"
    assert section_file("CyinstQuick").is_file()
