from dataclasses import replace

from profiler.model import Device, LaunchProfile, NvtxRange
from profiler.pairing import nvtx_path, pair_launches

DEVICE = Device("NVIDIA H200", (9, 0), 132, 4)


def launch(index: int, kernel: str, grid: int = 1, nvtx: str = "", mangled: str = "") -> LaunchProfile:
    return LaunchProfile(
        index=index, range_index=0, action_index=index, workload="kernel", kernel=kernel, demangled=kernel,
        mangled=mangled or kernel, device=DEVICE, grid=(grid, 1, 1), block=(32, 1, 1), cluster=None,
        nvtx=tuple(NvtxRange("cyinst", name, "push_pop") for name in nvtx.split("/") if name), sections=(), metrics={},
    )  # fmt: skip


def indices(before: list[LaunchProfile], after: list[LaunchProfile], by: str = "auto") -> tuple[list, list, list]:
    pairs, left, right = pair_launches(before, after, by)
    return [(b.index, a.index) for b, a in pairs], [x.index for x in left], [x.index for x in right]


def test_same_kernels_pair_in_order() -> None:
    side = [launch(0, "a"), launch(1, "b"), launch(2, "a")]
    assert indices(side, side) == ([(0, 0), (1, 1), (2, 2)], [], [])


def test_the_launch_shape_tells_same_named_launches_apart() -> None:
    before = [launch(0, "a", grid=1), launch(1, "a", grid=8)]
    after = [launch(0, "a", grid=8), launch(1, "a", grid=1)]
    assert indices(before, after)[0] == [(0, 1), (1, 0)]


def test_overloads_with_the_same_function_name_are_not_mixed_up() -> None:
    before = [launch(0, "gemm", mangled="_Z4gemmIfE"), launch(1, "gemm", mangled="_Z4gemmIhE")]
    after = [launch(0, "gemm", mangled="_Z4gemmIhE"), launch(1, "gemm", mangled="_Z4gemmIfE")]
    assert indices(before, after)[0] == [(0, 1), (1, 0)]


def test_a_changed_template_argument_still_pairs_by_function_name() -> None:
    assert indices([launch(0, "gemm", mangled="_Z4gemmILi4EE")], [launch(0, "gemm", mangled="_Z4gemmILi8EE")])[0] == [
        (0, 0)
    ]


def test_renamed_kernels_pair_by_nvtx_range() -> None:
    before = [launch(0, "scale", nvtx="step/scale"), launch(1, "mm_v1", nvtx="step/mm")]
    after = [launch(0, "mm_v2", nvtx="step/mm"), launch(1, "scale2", nvtx="step/scale")]
    assert indices(before, after)[0] == [(0, 1), (1, 0)]
    assert indices(before, after, by="kernel") == ([], [0, 1], [0, 1])


def test_one_launch_left_on_each_side_is_a_pair_under_auto_only() -> None:
    before, after = [launch(0, "a"), launch(1, "old")], [launch(0, "a"), launch(1, "new")]
    assert indices(before, after)[0] == [(0, 0), (1, 1)]
    assert indices(before, after, by="kernel") == ([(0, 0)], [1], [1])


def test_what_has_no_partner_is_returned() -> None:
    before, after = [launch(0, "a"), launch(1, "a")], [launch(0, "a"), launch(1, "b"), launch(2, "c")]
    assert indices(before, after) == ([(0, 0)], [1], [1, 2])


def test_launches_without_ranges_never_pair_by_nvtx() -> None:
    assert indices([launch(0, "a")], [launch(0, "a")], by="nvtx") == ([], [0], [0])


def test_nvtx_path_is_outermost_first() -> None:
    assert nvtx_path(launch(0, "a", nvtx="step/inner")) == "step/inner"
    assert nvtx_path(replace(launch(0, "a"), nvtx=())) == ""
