"""Ranges, cases and kernels: on the host with a stand-in for the GPU, and on a GPU where there is one."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_bench import HostBench, planted

import profiler
from profiler import launch, ranges
from profiler.errors import LaunchError, MissingToolError, SpecimenError, UsageError
from profiler.launch import GUARD, POISON, Bench, Kernel
from profiler.ranges import annotate
from profiler.specimen import CudaSource, Shape, Specimen, Variant
from profiler.verify import verify


class Recorder:
    """An NVTX domain that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.open = 0

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self.events.append(f"push {attributes}")

    def pop_range(self) -> None:
        self.events.append("pop")

    def start_range(self, attributes: str) -> int:
        self.open += 1
        self.events.append(f"start {attributes} {self.open}")
        return self.open

    def end_range(self, number: int) -> None:
        self.events.append(f"end {number}")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    domain = Recorder()
    monkeypatch.setattr(ranges, "_domain", lambda: domain)
    monkeypatch.setattr(ranges, "_ranges", {})
    return domain.events


def test_ranges_nest_and_close_after_an_error(recorded: list[str]) -> None:
    with pytest.raises(KeyError), annotate("outer"), annotate("inner"):
        raise KeyError
    with annotate("outer"):
        pass
    assert recorded == ["push outer", "push inner", "pop", "pop", "push outer", "pop"]


def test_a_range_decorates_a_function(recorded: list[str]) -> None:
    @annotate("fib")
    def fib(n: int) -> int:
        """Fibonacci."""
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(3) == 2
    assert (fib.__name__, fib.__doc__) == ("fib", "Fibonacci.")
    assert recorded.count("push fib") == recorded.count("pop") == 5


def test_process_wide_ranges_end_what_they_started(recorded: list[str]) -> None:
    both = annotate("step", process_wide=True)
    with both, both:
        pass

    @annotate("work", process_wide=True)
    def down(n: int) -> None:
        if n:
            down(n - 1)

    down(1)
    assert recorded == [
        "start step 1", "start step 2", "end 2", "end 1", "start work 3", "start work 4", "end 4", "end 3",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "a b", "a/b", "cyinst@a", "a]", "[a", "a*", "a+", "a,b", "a\n", "-a"])
@pytest.mark.parametrize("process_wide", [False, True])
def test_a_name_that_a_filter_would_misread_is_refused(name: str, process_wide: bool) -> None:
    with pytest.raises(UsageError, match="a range's name"):
        annotate(name, process_wide=process_wide)


def test_the_public_door(recorded: list[str]) -> None:
    with profiler.annotate("step_1.warm-up"):
        pass
    assert recorded == ["push step_1.warm-up", "pop"]


def test_ranges_work_with_the_real_package_from_many_threads() -> None:
    def work() -> None:
        for n in range(200):
            with annotate(f"t{n % 3}"), annotate("p", process_wide=True):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_without_the_nvtx_package_ranges_do_nothing() -> None:
    code = (
        "import sys; sys.modules['nvtx'] = None\n"
        "from profiler import annotate\n"
        "with annotate('a'), annotate('b', process_wide=True): print('ran')\n"
        "print(annotate('c')(lambda x: x + 1)(2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ran", "3"]


# Cases and kernels, on the host.


def case_of(name: str, shape: Shape | None = None) -> tuple[HostBench, launch.Case]:
    specimen, bench = planted(), HostBench()
    (variant,) = specimen.pick((name,))
    shape = shape or specimen.shape
    return bench, bench.case(specimen, variant, shape, specimen.make_inputs(shape))


def test_every_phase_has_a_range_of_its_own(recorded: list[str]) -> None:
    _, case = case_of("1_good")
    case.prepare()
    case.launch(warm_up=True)
    case.launch()
    assert recorded == [
        "push planted.1_good.prepare", "pop", "push planted.1_good.warm_up", "pop", "push planted.1_good", "pop",
    ]  # fmt: skip
    assert case.filter == "cyinst@planted.1_good/"


def test_a_case_is_poisoned_and_its_output_lies_between_guards() -> None:
    _, case = case_of("1_good")
    assert np.isnan(case.out).all()
    assert case.out.base.nbytes == GUARD + 5 * 7 * 4 + GUARD
    case.launch()
    assert np.array_equal(case.result(), 2 * case.inputs["x"][:, :7] + 1)
    assert case.stray() is None
    case.witness[0] = 5
    case.poison(0x11)
    assert case.witness_value() == 0
    assert (case.result().view(np.uint8) == 0x11).all()
    assert case.stray(0x11) is None
    assert case.stray(POISON) == (2 * GUARD, 5 * 7 * 4)


def test_inputs_are_copies_and_what_is_no_array_is_passed_on() -> None:
    bench, case = case_of("1_good")
    given = {"x": np.zeros((5, 8), np.float32), "note": ["a list"]}
    case = bench.case(case.specimen, case.variant, case.shape, given)
    case.inputs["x"][...] = 1
    assert not given["x"].any()
    assert case.inputs["note"] is given["note"]


def test_the_bare_launch_is_prepared_once_and_opens_no_range(recorded: list[str]) -> None:
    _, case = case_of("1_good")
    assert case.ready() is case.ready()
    case.ready()()
    assert np.array_equal(case.result(), 2 * case.inputs["x"][:, :7] + 1)
    assert recorded == ["push planted.1_good.prepare", "pop"]


def test_launches_are_recorded_but_not_those_of_prepare() -> None:
    _, case = case_of("fallback")
    case.prepare()
    assert case.launched == ["fast"]
    case.launch()
    assert case.launched == ["slow"]


def test_a_kernel_of_no_source_is_told_with_those_there_are() -> None:
    _, case = case_of("fast")
    with pytest.raises(SpecimenError, match="no source of fast declares the kernel 'faster'; declared are: fast, slow"):
        case.kernel("faster")


class Function:
    def __init__(self) -> None:
        self.max_dynamic_shared_size_bytes = 49152
        self.calls: list[Any] = []

    def __call__(self, *what: Any, **more: Any) -> None:
        self.calls.append((*what, more))


def test_a_kernel_takes_numpy_scalars_arrays_and_null_pointers() -> None:
    function, launched = Function(), []
    kernel = Kernel("k", function, launched)
    array = np.zeros(2)
    kernel([np.int64(4), 2], (32,), (array, None, np.int32(7)))
    ((grid, block, args, more),) = function.calls
    assert (grid, block, more) == ((4, 2), (32,), {"shared_mem": 0})
    assert args[0] is array
    assert (type(args[1]), int(args[1])) == (np.uint64, 0)
    assert type(args[2]) is np.int32
    assert launched == ["k"]


@pytest.mark.parametrize("arg", [7, 0.5, True])
def test_a_python_number_has_no_size(arg: object) -> None:
    # CuPy would pass 64 bits where the kernel reads 32.
    launched: list[str] = []
    with pytest.raises(SpecimenError, match=f"k: argument 1 is a Python number: say np.int32\\({arg}\\)"):
        Kernel("k", Function(), launched)((1,), (1,), (None, arg))
    assert launched == []


def test_much_shared_memory_is_allowed_once() -> None:
    function = Function()
    kernel = Kernel("k", function, [])
    kernel((1,), (1,), (), shared=49152)
    assert function.max_dynamic_shared_size_bytes == 49152
    kernel((1,), (1,), (), shared=100_000)
    assert function.max_dynamic_shared_size_bytes == 100_000
    kernel((1,), (1,), (), shared=60_000)
    assert function.max_dynamic_shared_size_bytes == 100_000
    assert [more["shared_mem"] for *_, more in function.calls] == [49152, 100_000, 60_000]


def test_what_does_not_compile_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path] = []

    def refuse(source: CudaSource, arch: str, nvrtc: object) -> Path:
        asked.append(source.path)
        raise SpecimenError("k.cu:3: no")

    monkeypatch.setattr(launch.build, "build", refuse)
    specimen, bench = planted(), Bench(HostBench().device)
    (check, *others) = verify(specimen, specimen.pick(("fast",)), bench, programs=False).checks
    assert (check.verdict, check.problems) == ("INVALID", ("k.cu:3: no",))
    assert [other.problems for other in others] == [check.problems] * 3
    assert len(asked) == 1


class CUDADriverError(RuntimeError):
    pass


def test_cuda_errors_name_variant_shape_and_kernel() -> None:
    bench, case = case_of("fast")

    def fail(*_: object, **__: object) -> None:
        raise CUDADriverError("CUDA_ERROR_LAUNCH_FAILED: unspecified\nlaunch failure")

    bench.function = lambda source, entry: fail  # type: ignore[method-assign]
    with pytest.raises(LaunchError) as caught:
        case.launch()
    reason = "fast: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"
    assert caught.value.reason == reason
    assert str(caught.value) == f"planted.fast at rows=5 cols=7 pitch=8: {reason}"
    assert caught.value.exit_code == SpecimenError.exit_code == 8


def test_a_launch_that_returns_no_array_computes_into_out() -> None:
    bench, case = case_of("1_good")
    variant = Variant("x", "", lambda case: lambda: ("compiled", "kernel"))
    case = bench.case(case.specimen, variant, case.shape, {})
    case.launch()
    assert case.writes_out
    assert np.isnan(case.result()).all()


# No CuPy, no GPU.


def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)


def test_without_cupy_the_remedy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cupy(monkeypatch)
    with pytest.raises(MissingToolError, match=r"needs CuPy, which is not installed.*: pip install 'cyinst\[cupy\]'$"):
        Bench()


def fake_cupy(count: Callable[[], int]) -> Any:
    runtime = types.SimpleNamespace(getDeviceCount=count)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(no_driver))
    with pytest.raises(MissingToolError, match=r"needs an NVIDIA GPU, and none was found: cudaErrorInsufficientDriver"):
        Bench()
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(lambda: 0))
    with pytest.raises(MissingToolError, match="none was found: the driver reports none"):
        Bench()


# NVRTC's binding, as CuPy has it.


class Binding:
    NVRTCError = RuntimeError

    def __init__(self, image: bytes, log: str = "") -> None:
        self.image, self.log, self.destroyed = image, log, 0

    def getVersion(self) -> tuple[int, int]:  # noqa: N802
        return 13, 5

    def createProgram(self, text: str, name: str, headers: object, names: object) -> int:  # noqa: N802
        return 1

    def compileProgram(self, program: int, options: tuple[str, ...]) -> None:  # noqa: N802
        if self.log:
            raise RuntimeError("NVRTC_ERROR_COMPILATION")

    def getCUBIN(self, program: int) -> bytes:  # noqa: N802
        return self.image

    def getProgramLog(self, program: int) -> str:  # noqa: N802
        return self.log

    def destroyProgram(self, program: int) -> None:  # noqa: N802
        self.destroyed += 1


def test_the_byte_that_cupy_drops_from_a_cubin_is_put_back() -> None:
    whole = bytearray(64 + 2 * 56)
    whole[:4] = b"\x7fELF"
    whole[32:40], whole[54:56], whole[56:58] = (64).to_bytes(8, "little"), b"\x38\x00", b"\x02\x00"
    for image in (bytes(whole), bytes(whole[:-1])):
        binding = Binding(image)
        nvrtc = launch._Nvrtc(binding)
        assert nvrtc.version == "13.5"
        assert nvrtc.compile("", "k.cu", ()) == bytes(whole)
        assert binding.destroyed == 1


def test_what_nvrtc_refuses_is_its_log() -> None:
    binding = Binding(b"", "k.cu(1): error: no")
    with pytest.raises(launch.build.CompilerError, match="error: no"):
        launch._Nvrtc(binding).compile("", "k.cu", ())
    assert binding.destroyed == 1


# On a GPU.

SCALE = """
extern "C" __global__ void scale(float* y, const float* x, float a, int n, unsigned* witness) {
    extern __shared__ float staged[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    staged[threadIdx.x] = i < n ? x[i] : 0.f;
    __syncthreads();
    if (i < n) y[i] = a * staged[threadIdx.x];
    if (witness && i == 0) *witness = 4;
}
extern "C" __global__ void wild(float* y) { y[(1ll << 40) + threadIdx.x] = 1.f; }
extern "C" __global__ void spill(float* y, int n) { y[n + threadIdx.x] = 1.f; }
"""


@pytest.fixture
def gpu() -> Bench:
    pytest.importorskip("cupy", reason="launching needs CuPy: pip install 'cyinst[cupy]'")
    return Bench()


def scaling(folder: Path) -> Specimen:
    (folder / "scale.cu").write_text(SCALE)
    source = CudaSource(folder / "scale.cu", ("scale", "wild", "spill"))
    specimen = Specimen("scale", "y = 3 x", Shape(n=1000), (Shape(n=1), Shape(n=1000)), 0.0)
    specimen.inputs(lambda shape, rng: {"x": rng.standard_normal(shape.n).astype(np.float32)})
    specimen.reference(lambda shape, given: (np.float32(3) * given["x"]).astype(np.float64))
    specimen.output(lambda shape: ((shape.n,), "float32"))

    def prepare(witness: bool, after: str | None = None) -> Callable[[Any], Callable[[], None]]:
        def made(case: Any) -> Callable[[], None]:
            kernel, blocks, n = case.kernel("scale"), (case.shape.n + 127) // 128, np.int32(case.shape.n)
            args = (case.out, case.inputs["x"], np.float32(3), n, case.witness if witness else None)
            plane = case.array((16, 1024), "float32")

            def launch_it() -> None:
                kernel((blocks,), (128,), args, shared=100_000)
                if after == "spill":
                    case.kernel("spill")((1,), (2,), (case.out, n))
                if after == "wild":
                    case.kernel("wild")((1,), (2,), (plane,))

            return launch_it

        return made

    sources = (source,)
    specimen.variant("by_name", idea="", sources=sources, path=lambda s: "scale", bit_equal="g")(prepare(False))
    specimen.variant("by_number", idea="", sources=sources, path=lambda s: 4, bit_equal="g")(prepare(True))
    specimen.variant("spills", idea="", sources=sources)(prepare(True, "spill"))
    specimen.variant("wild", idea="", sources=sources)(prepare(True, "wild"))
    return specimen


@pytest.mark.gpu
def test_kernels_run_on_a_gpu_and_are_judged(gpu: Bench, tmp_path: Path) -> None:
    specimen = scaling(tmp_path)
    result = verify(specimen, specimen.pick(("by_name", "by_number", "spills")), gpu)
    for name in ("by_name", "by_number"):
        assert [(c.verdict, c.path_ok, c.problems) for c in result.of(name)] == [("ok", True, ())] * 2
        assert {c.extra_bytes for c in result.of(name)} == {65536}
    assert [c.problems for c in result.of("spills")] == [
        ("wrote outside the output: 8 bytes, the nearest 1 byte behind it",)
    ] * 2
    assert gpu.gpu.startswith("NVIDIA")


@pytest.mark.gpu
def test_arrays_of_any_kind_come_back(gpu: Bench) -> None:
    there = gpu.device.upload(np.array([1.0, 2.0]))
    assert np.array_equal(gpu.device.download(there), [1.0, 2.0])
    assert np.array_equal(gpu.device.download(np.arange(3)), np.arange(3))
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.0, 2.5], dtype=torch.bfloat16, device="cuda", requires_grad=True)
    assert np.array_equal(gpu.device.download(tensor), np.array([1.0, 2.5], np.float32))


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_lost_context_ends_the_run_on_a_gpu(tmp_path: Path) -> None:
    # In a process of its own: the context of this one must live on.
    script = tmp_path / "lose.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nimport test_launch\n"
        "from profiler.launch import Bench\nfrom profiler.verify import verify\n"
        "specimen = test_launch.scaling(Path(sys.argv[2]))\n"
        "result = verify(specimen, specimen.pick(('wild', 'by_name')), Bench())\n"
        "print([c.verdict for c in result.checks], result.checks[0].problems)\n"
    )
    words = [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.startswith("['INVALID', 'not run', 'not run', 'not run'] ('wild: "), done.stdout + done.stderr
    assert "illegal" in done.stdout.lower()
