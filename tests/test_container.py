"""What the container says of a capture's conditions, and of its own damage."""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard

from profiler.container import MAGIC, ZSTD_MAGIC, parse_ncu_options, read_container, unpacked
from profiler.errors import ReportError
from profiler.model import UNKNOWN, Report, Setting
from profiler.ncu_parse import load, read

ON_LINE, IN_REPORT, DEFAULT = "command line", "report", "ncu default"

# As scripts/record_captures.py runs ncu, in its order: cache control, replay mode, whether the source was imported.
RECORDED = {
    "kinds": (("all", DEFAULT), ("kernel", DEFAULT), "yes"),
    "basic": (("all", DEFAULT), ("kernel", DEFAULT), "no"),
    "cache_none": (("none", ON_LINE), ("kernel", DEFAULT), "no"),
    "application_replay": (("all", DEFAULT), ("application", ON_LINE), "no"),
    "range_replay": (("all", DEFAULT), ("range", ON_LINE), "no"),
    "graph": (("all", DEFAULT), ("kernel", DEFAULT), "no"),
    "samples_only": (("all", DEFAULT), ("kernel", DEFAULT), "no"),
    "states_only": (("all", DEFAULT), ("kernel", DEFAULT), "no"),
    "duration_only": (("all", DEFAULT), ("kernel", DEFAULT), "no"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_each_capture_states_the_conditions_under_which_it_was_recorded(
    name: str, capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    report = load_once(capture(name))
    conditions = report.conditions
    cache, replay, imported = RECORDED[name]
    assert conditions.ncu_version == "2025.3.1.0"
    assert conditions.driver_version is not None
    assert conditions.driver_version.startswith("580.159")
    assert conditions.cuda_version == "13.0"
    assert conditions.command_line is not None
    assert "./fixture" in conditions.command_line
    assert conditions.clock_control == Setting("none", ON_LINE)
    assert conditions.cache_control == Setting(*cache)
    assert conditions.replay_mode == Setting(*replay)
    assert conditions.import_source.value == imported
    assert {x.clocks_locked for x in report.launches} == {False}


def test_creation_times_are_in_the_order_of_recording(
    capture: Callable[[str], Path], load_once: Callable[[Path], Report]
) -> None:
    created = [load_once(capture(name)).conditions.created for name in RECORDED]
    assert all(isinstance(x, int) for x in created)
    assert created == sorted(created)
    # Seconds since 1970, not milliseconds and not zero.
    assert all(1.5e9 < x < 4e9 for x in created)


@pytest.fixture(scope="module")
def corpus_table(corpus_files: tuple[Path, ...]) -> dict[str, dict[str, str]]:
    """The table of the corpus's README: file -> column -> text."""
    readme = corpus_files[0].parent / "README.md"
    if not readme.is_file():
        pytest.skip(f"no table of the corpus: {readme} is missing")
    rows = [
        [c.strip() for c in x.strip("|\n").split("|")] for x in readme.read_text().splitlines() if x.startswith("|")
    ]
    head, _, *body = rows
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


def test_each_stranger_is_read_as_the_corpus_table_describes_it(
    corpus_file: Path, corpus_table: dict[str, dict[str, str]], load_once: Callable[[Path], Report]
) -> None:
    row = corpus_table[corpus_file.name]
    if row["launches"] == "0":
        with pytest.raises(ReportError):
            read(corpus_file)
        return
    report = load_once(corpus_file)
    assert len(report.launches) == int(row["launches"])
    assert report.conditions.ncu_version == (None if row["ncu"] == "nan" else row["ncu"].split()[0])
    assert {x.device.cc for x in report.launches} == {row["cc"]}
    assert {x.device.name for x in report.launches} == {row["GPU"]}


def test_every_whole_report_has_no_problems_and_one_clock_lock_per_launch(report: Report, report_path: Path) -> None:
    container = read_container(report_path.read_bytes())
    assert container.problems == ()
    assert report.problems == ()
    assert container.conditions == report.conditions
    assert len(container.locked) == len(report.launches)
    assert container.locked == tuple(x.clocks_locked for x in report.launches)


def test_what_a_report_does_not_record_is_unknown_and_not_a_default(report: Report) -> None:
    conditions = report.conditions
    for setting in (conditions.cache_control, conditions.replay_mode):
        if conditions.command_line is None and setting.source != IN_REPORT:
            assert setting == UNKNOWN
        else:
            assert setting.value is not None
            assert setting.source in (ON_LINE, IN_REPORT, DEFAULT)


# ---- the walk over the blocks --------------------------------------------------------------------------------------


def varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position


def field_of(message: bytes, number: int) -> int:
    """A varint field of a protobuf message, by hand: this must not lean on the code under test."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        if key & 7 == 0:
            value, position = varint(message, position)
            if key >> 3 == number:
                return value
        else:
            length, position = varint(message, position) if key & 7 == 2 else (8 if key & 7 == 1 else 4, position)
            position += length
    return 0


def boundaries(data: bytes) -> list[int]:
    """Where the file header and each block end."""
    found = [8 + struct.unpack_from("<I", data, 4)[0]]
    while found[-1] < len(data):
        start = found[-1] + 4
        size = struct.unpack_from("<I", data, found[-1])[0]
        found.append(start + size + field_of(data[start : start + size], 5))
    return found


@pytest.mark.parametrize("name", ["states_only", "kinds", "basic", "range_replay", "graph"])
def test_a_cut_inside_a_block_is_a_problem_and_a_cut_between_blocks_is_none(
    name: str, capture: Callable[[str], Path]
) -> None:
    data = capture(name).read_bytes()
    whole = read_container(data)
    ends = boundaries(data)
    assert ends[-1] == len(data)
    assert len(ends) > 2
    for end in ends:
        assert read_container(data[:end]).problems == (), end
    rng = random.Random(name)
    cuts = {end + step for end in ends[:-1] for step in (1, 2, 3, 4, 5, 9)} | {end - 1 for end in ends[1:]}
    cuts |= {rng.randrange(ends[0] + 1, len(data)) for _ in range(80)}
    for cut in sorted(cuts - set(ends)):
        found = read_container(data[:cut])
        assert len(found.problems) == 1, cut
        assert "truncated or damaged" in found.problems[0]
        assert "\n" not in found.problems[0]
        # What was read before the break is true; nothing is made up after it.
        assert found.locked == whole.locked[: len(found.locked)]


def test_a_cut_inside_the_file_header_is_a_problem(capture: Callable[[str], Path]) -> None:
    data = capture("states_only").read_bytes()
    for cut in range(5, boundaries(data)[0]):
        assert read_container(data[:cut]).problems, cut


def test_bytes_of_another_kind_are_a_problem_and_never_an_exception() -> None:
    assert read_container(b"").problems
    assert read_container(b"PK\x03\x04").problems
    assert read_container(MAGIC).problems
    rng = random.Random(5)
    for size in (1, 8, 100, 5000):
        assert read_container(rng.randbytes(size)).problems
        read_container(MAGIC + rng.randbytes(size))


def test_a_compressed_container_that_cannot_be_unpacked_is_not_called_damaged() -> None:
    assert unpacked(ZSTD_MAGIC + b"anything") is None
    assert read_container(ZSTD_MAGIC + b"anything").problems == ()


def test_a_compressed_container_says_what_the_plain_one_says(demo_paths: tuple[Path, Path]) -> None:
    data = demo_paths[1].read_bytes()
    packed = zstandard.ZstdCompressor().compress(data)
    assert unpacked(packed) == data
    assert unpacked(packed[:-100]) is None
    assert read_container(packed) == read_container(data)
    assert read_container(packed).conditions.ncu_version is not None


# ---- containers made here, field by field --------------------------------------------------------------------------


def encode(number: int, value: int | float | bytes | str) -> bytes:
    """One protobuf field: int as varint, float as fixed32, the rest as bytes."""

    def number_of(x: int) -> bytes:
        out = b""
        while x > 0x7F:
            out, x = out + bytes([x & 0x7F | 0x80]), x >> 7
        return out + bytes([x])

    if isinstance(value, int):
        return number_of(number << 3) + number_of(value)
    if isinstance(value, float):
        return number_of(number << 3 | 5) + struct.pack("<f", value)
    raw = value.encode() if isinstance(value, str) else value
    return number_of(number << 3 | 2) + number_of(len(raw)) + raw


def container(*, session: bytes = b"", results: Sequence[bytes] = (), sources: int = 0, extra: bytes = b"") -> bytes:
    """A report of one block: session message and kernel results, both encoded."""
    payload = b"".join(struct.pack("<I", len(x)) + x for x in results) + extra
    block = encode(1, sources) + encode(2, len(results)) + encode(3, session) + encode(5, len(payload))
    return MAGIC + struct.pack("<I", 0) + struct.pack("<I", len(block)) + block + payload


def test_a_command_line_without_the_option_gives_the_default_and_says_so() -> None:
    conditions = read_container(container(session=encode(11, "ncu -o out ./app"))).conditions
    assert conditions.clock_control == Setting("base", DEFAULT)
    assert conditions.cache_control == Setting("all", DEFAULT)
    assert conditions.replay_mode == Setting("kernel", DEFAULT)
    assert conditions.import_source == Setting("no", DEFAULT)


def test_without_a_command_line_nothing_is_known() -> None:
    conditions = read_container(container()).conditions
    assert conditions.clock_control == UNKNOWN
    assert conditions.cache_control == UNKNOWN
    assert conditions.replay_mode == UNKNOWN
    assert conditions.import_source == UNKNOWN
    assert (conditions.ncu_version, conditions.driver_version, conditions.created) == (None, None, None)


def test_settings_of_the_report_win_over_defaults_and_the_command_line_over_both() -> None:
    settings = encode(8, "None") + encode(10, 1) + encode(11, "Range")
    session = encode(10, settings) + encode(11, "ncu --replay-mode application ./app")
    conditions = read_container(container(session=session)).conditions
    assert conditions.clock_control == Setting("none", IN_REPORT)
    assert conditions.import_source == Setting("yes", IN_REPORT)
    assert conditions.replay_mode == Setting("application", ON_LINE)


@pytest.mark.parametrize(
    ("clocks", "locked", "setting"),
    [
        ([encode(1, 1) + encode(2, 1)], (True,), Setting("base", IN_REPORT)),
        ([encode(1, 0) + encode(2, 0)], (False,), Setting("none", IN_REPORT)),
        ([encode(1, 1), encode(1, 0)], (True, False), UNKNOWN),
        ([None], (None,), UNKNOWN),
    ],
)
def test_the_clock_lock_of_each_result_is_read_and_decides_only_when_they_agree(
    clocks: list[bytes | None], locked: tuple[bool | None, ...], setting: Setting
) -> None:
    found = read_container(container(results=[b"" if x is None else encode(25, x) for x in clocks]))
    assert found.problems == ()
    assert found.locked == locked
    assert found.conditions.clock_control == setting


@pytest.mark.parametrize(
    ("number", "text"),
    [(580.159, "580.159"), (576.40, "576.40"), (550.90, "550.90"), (535.54, "535.54"), (535.0, "535.00")],
)
def test_a_driver_number_keeps_the_two_digits_of_its_minor_version(number: float, text: str) -> None:
    found = read_container(container(results=[encode(35, number)]))
    assert found.problems == ()
    assert found.conditions.driver_version == text


def test_text_that_is_not_utf8_costs_no_launch(capture: Callable[[str], Path], tmp_path: Path) -> None:
    # A folder name in a legacy code page, say.
    data = capture("states_only").read_bytes()
    assert data.count(b" ./fixture ") == 1
    path = tmp_path / "legacy.ncu-rep"
    path.write_bytes(data.replace(b" ./fixture ", b" ./fi\xe4ture "))
    found = read_container(path.read_bytes())
    assert found.problems == ()
    assert isinstance(found.conditions.command_line, str)
    assert found.conditions.clock_control == Setting("none", ON_LINE)
    report = load(path)
    assert [x.kernel for x in report.launches] == ["saxpy"]


def test_a_claim_of_millions_of_sources_costs_no_memory() -> None:
    data = container(sources=5_000_000, extra=b"\0" * 8)
    tracemalloc.start()
    try:
        found = read_container(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.problems
    assert peak < 5e6, f"{peak / 1e6:.0f} MB for a file of {len(data)} bytes"


# ---- the recorded command line -------------------------------------------------------------------------------------

NONE = {"--cache-control": "none"}


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("ncu ./app", {}),
        ("ncu", {}),
        ("ncu --cache-control none ./app", NONE),
        ("ncu --cache-control=none ./app", NONE),
        ("ncu --clock-control none --cache-control none", {"--clock-control": "none", **NONE}),
        ("ncu --replay-mode=app-range -o a ./app", {"--replay-mode": "app-range"}),
        ("ncu --set full -f --nvtx --nvtx-include step/ --cache-control none ./app", NONE),
        # The program's own arguments are not ncu's.
        ("ncu -o out ./app --cache-control none --clock-control none", {}),
        ("ncu --cache-control none ./app --cache-control all", NONE),
        ("ncu --cache-control none python3 train.py --replay-mode=range", NONE),
        ("ncu --cache-control none -- ./app --clock-control none", NONE),
        ("ncu -- --cache-control none", {}),
        ("/opt/nvidia/nsight-compute/2025.3.1/target/x/ncu  --cache-control   none  ./app ", NONE),
    ],
)
def test_an_option_counts_with_and_without_the_equals_sign_and_only_before_the_program(
    line: str, options: dict[str, str]
) -> None:
    assert parse_ncu_options(line) == options


# As ncu 2025.3.1 accepted and recorded them, shortened; the lines marked with = are variations of the one above.
@pytest.mark.parametrize(
    ("line", "options"),
    [
        # ncu puts quotes around words with spaces, and nothing around an apostrophe.
        ('ncu -f -o a -k "regex:(x y|kk)" --cache-control none ./k it\'s "two words" ', NONE),
        # A value may touch its short option, and short options may be run together.
        ("ncu --metrics gpu__time_duration.sum -c1 -fo b --cache-control none ./k ", NONE),
        # =
        ("ncu -c1 ./k --cache-control none ", {}),
        # A name may be cut short as long as it is the only one.
        ("ncu -f -o c --cache none ./k ", NONE),
        # =
        ("ncu --clock none --replay application ./k ", {"--clock-control": "none", "--replay-mode": "application"}),
        (
            "ncu --cache-control=none --print-kernel-base function --replay-mode=application ./k --cache-control all ",
            {**NONE, "--replay-mode": "application"},
        ),
        ("ncu -f -o f --import-source ON --cache-control none -- ./k ", {"--import-source": "yes", **NONE}),
        (
            "ncu -k regex:kk --nvtx --disable-extra-suffixes --print-fp --print-rule-details "
            '--print-metric-attribution --cache-control none ./k a\\b q"q ',
            NONE,
        ),
    ],
)
def test_a_command_line_is_read_the_way_ncu_read_it(line: str, options: dict[str, str]) -> None:
    assert parse_ncu_options(line) == options


WINDOWS = r'"C:\Program Files\NVIDIA Corporation\Nsight Compute 2024.3.2\\target\windows-desktop-win7-x64\ncu.exe"'


@pytest.mark.parametrize(
    ("rest", "options"),
    [
        (r" -c 2 --csv -o .\out -f --cache-control none .\bin\app.exe 5000 .\data\x ", NONE),
        (r' -o "D:\my reports\a" --cache-control none .\app.exe', NONE),
        (r" -o D:\reports\ --cache-control none .\app.exe", NONE),
        (r" --cache-control none .\app.exe it's", NONE),
        (r" -o out .\app.exe --cache-control none", {}),
    ],
)
def test_a_quoted_windows_path_with_spaces_is_one_word(rest: str, options: dict[str, str]) -> None:
    assert parse_ncu_options(WINDOWS + rest) == options


# From ncu --help of 2025.3.1.
FLAGS = (
    "--forward-signals --call-stack --nvtx --support-32bit --null-stdin --disable-profiler-start-stop --quiet "
    "--verbose --disable-extra-suffixes -f --force-overwrite --open-in-ui --csv --print-metric-attribution --print-fp "
    "--print-rule-details"
).split()
WITH_VALUE = (
    "--mode -p --port --max-connections --config-file --config-file-path --mps --mps-num-clients --mps-timeout "
    "--check-exit-code --injection-path-32 --injection-path-64 --preload-library --call-stack-type --target-processes "
    "--target-processes-filter --nvtx-push-pop-scope --hostname --kill --replay-mode --app-replay-buffer "
    "--app-replay-match --app-replay-mode --graph-profiling --range-replay-options --set --section-folder "
    "--section-folder-recursive --apply-rules --rule --import-sass --import-source --source-folders "
    "--query-metrics-mode --query-metrics-collection --chips --profile-from-start --clock-control "
    "--pipeline-boost-state --devices --filter-mode --kernel-id -k --kernel-name --kernel-name-base --rename-kernels "
    "--rename-kernels-export --rename-kernels-path -c --launch-count -s --launch-skip --launch-skip-before-match "
    "--section --metrics --nvtx-include --nvtx-exclude --range-filter --native-include --native-exclude "
    "--python-include --python-exclude --pm-sampling-interval --pm-sampling-buffer-size --pm-sampling-max-passes "
    "--warp-sampling-interval --warp-sampling-max-passes --warp-sampling-buffer-size --log-file -o --export -i "
    "--import --page --print-source --resolve-source-file --print-details --print-metric-name --print-units "
    "--print-kernel-base --print-metric-instances --print-nvtx-rename --print-summary"
).split()


@pytest.mark.parametrize("flag", [*FLAGS, "--lockstep-kernel-launch"])
def test_no_flag_of_ncu_swallows_the_word_after_it(flag: str) -> None:
    assert parse_ncu_options(f"ncu {flag} --cache-control none ./app")["--cache-control"] == "none"
    assert parse_ncu_options(f"ncu {flag} ./app --cache-control none").get("--cache-control") is None


@pytest.mark.parametrize("option", WITH_VALUE)
def test_no_value_of_an_option_is_taken_for_the_program(option: str) -> None:
    assert parse_ncu_options(f"ncu {option} value --cache-control none ./app")["--cache-control"] == "none"
    assert parse_ncu_options(f"ncu {option} value ./app --cache-control none").get("--cache-control") is None


@pytest.mark.parametrize(
    ("spelling", "value"),
    [(x, "yes") for x in ("yes", "1", "on", "true", "ON", "True")]
    + [(x, "no") for x in ("no", "0", "off", "false", "OFF", "False")],
)
def test_every_spelling_of_yes_and_no_is_read(spelling: str, value: str) -> None:
    assert parse_ncu_options(f"ncu --import-source {spelling} ./app") == {"--import-source": value}
    assert parse_ncu_options(f"ncu --import-source={spelling} ./app") == {"--import-source": value}


def test_no_command_line_however_broken_raises() -> None:
    rng = random.Random(3)
    pieces = ["ncu", "--cache-control", "none", '"', "'", "\\", "=", "--", " ", "-k", "\u00e4", "-", "--x=", "\t"]
    for _ in range(2000):
        found = parse_ncu_options("".join(rng.choices(pieces, k=rng.randrange(12))))
        assert all(re.fullmatch(r"--[a-z-]+", name) for name in found)
