import pytest

from profiler.blame import UNMARKED
from profiler.code import Frame, Instruction
from profiler.errors import UsageError
from profiler.regions import find_regions

SOURCE = """\
__device__ __forceinline__ float helper(float x) {   // 1
    return x * 2.0f;                                  // 2
}
__device__ void stage(float* s, const float* g) {     // 4
    for (int i = 0; i < 4; ++i) {                     // 5
        s[i] = helper(g[i]);                          // 6 "}" { in a string: "{"
    }
}
__global__ void __launch_bounds__(256, 3)
kernel(float* out, const float* in) {                 // 10
    stage(out, in);
    out[0] = 1.0f;
}
"""


def at(*lines: int, file: str = "/src/k.cu", text: str = "LDG.E R0") -> Instruction:
    opcode, *operands = text.split(" ")
    return Instruction(0, 0, None, opcode, tuple(operands), None, tuple(Frame(file, n) for n in lines))


def test_comment_pairs_name_their_lines_and_nest_by_path() -> None:
    text = "a\n// @region load\nb\n  // @region expand\nc\n// @end\nd\n/* @end */\ne\n"
    regions = find_regions({"/src/k.cu": text})
    assert regions.source == "source comments"
    assert not regions.problems
    names = [regions.region_of(at(n)) for n in range(1, 10)]
    assert names == [
        UNMARKED, "load", "load", "load/expand", "load/expand", "load/expand", "load", "load", UNMARKED,
    ]  # fmt: skip


def test_python_comments_mark_regions_too() -> None:
    regions = find_regions({"/src/k.py": "# @region dot\nx\n# @end\n"})
    assert regions.region_of(at(2, file="/src/k.py")) == "dot"


def test_a_helper_inlined_into_a_region_belongs_to_it() -> None:
    regions = find_regions({"/src/k.cu": "h\nx\n// @region body\ny\n// @end\n"})
    assert regions.region_of(at(1, 4)) == "body"
    assert regions.region_of(at(1, 2)) == UNMARKED


@pytest.mark.parametrize(
    ("text", "says"),
    [("// @region a\nx\n", "k.cu:1: @region a is not closed"), ("x\n// @end\n", "k.cu:2: @end closes no")],
)
def test_unbalanced_comments_are_named(text: str, says: str) -> None:
    assert says in find_regions({"k.cu": text}).problems[0]


def test_without_marks_the_functions_that_the_kernel_calls_are_the_regions() -> None:
    regions = find_regions({"/src/k.cu": SOURCE}, kernel="kernel")
    assert regions.source == "inlined functions"
    assert regions.region_of(at(6, 11)) == "stage"
    assert regions.region_of(at(2, 6, 11)) == "stage"
    assert regions.region_of(at(12)) == UNMARKED
    assert regions.region_of(at(6)) == "stage", "some instructions carry no inlining chain"


def test_a_function_name_of_the_line_table_needs_no_source() -> None:
    regions = find_regions({}, kernel="k")
    named = Instruction(
        0, 0, None, "FADD", (), None, (Frame("x.cu", 3, "inner"), Frame("x.cu", 9, "stage"), Frame("x.cu", 20))
    )
    assert regions.region_of(named) == "stage"


def test_a_region_file_names_lines_and_patterns() -> None:
    toml = """
    [[region]]
    name = "weights"
    lines = ["k.cu:2-3", "other.cu:7"]
    [[region]]
    name = "matrix"
    sass = "^IMMA"
    """
    regions = find_regions({"/src/k.cu": SOURCE}, toml)
    assert regions.source == "region file"
    assert regions.region_of(at(2)) == "weights"
    assert regions.region_of(at(7, file="C:\\src\\other.cu")) == "weights"
    assert regions.region_of(at(7, file="/src/another.cu")) == UNMARKED
    assert regions.region_of(at(9, text="IMMA.16816.S8.S8 R0")) == "matrix"
    assert regions.region_of(at(9)) == UNMARKED


def test_the_narrowest_range_wins() -> None:
    toml = '[[region]]\nname="a"\nlines=["k.cu:1-9"]\n[[region]]\nname="b"\nlines=["k.cu:4-5"]\n'
    regions = find_regions({}, toml)
    assert [regions.region_of(at(n)) for n in (3, 4, 6)] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("region = 3 =", "not TOML"),
        ("", "names no"),
        ('[[region]]\nlines=["k.cu:1"]', "without name"),
        ('[[region]]\nname="a"\nlines=["k.cu"]', "first-last"),
        ('[[region]]\nname="a"\nsass="("', "regular expression"),
    ],
)
def test_a_malformed_region_file_is_one_line(toml: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        find_regions({}, toml)
    assert "\n" not in str(error.value)
