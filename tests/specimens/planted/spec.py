"""out[r][c] = 2 * x[r][c] + 1 in NumPy on the host: variants that each have one defect, and some that have none."""

from __future__ import annotations

import numpy as np

from profiler.model import Work
from profiler.specimen import CudaSource, Shape, Specimen

SWEEP = (
    Shape(rows=1, cols=8, pitch=8),
    Shape(rows=5, cols=7, pitch=8),
    Shape(rows=5, cols=7, pitch=16),
    Shape(rows=33, cols=3, pitch=4),
)
SPEC = Specimen("planted", "two x plus one", Shape(rows=5, cols=7, pitch=8), SWEEP, 1e-6, layout=("pitch",))
KERNELS = (CudaSource(__file__, ("fast", "slow")),)


@SPEC.inputs
def inputs(shape, rng):
    x = rng.standard_normal((shape.rows, shape.cols)).astype(np.float32)
    padded = np.zeros((shape.rows, shape.pitch), np.float32)
    padded[:, : shape.cols] = x
    return {"x": padded, "note": "not an array"}


@SPEC.reference
def reference(shape, given):
    return 2 * given["x"][:, : shape.cols].astype(np.float64) + 1


@SPEC.output
def output(shape):
    return (shape.rows, shape.cols), "float32"


@SPEC.work
def work(shape):
    return Work(shape.rows * shape.cols)


def right(case):
    return np.float32(2) * case.inputs["x"][:, : case.shape.cols] + np.float32(1)


@SPEC.variant("1_good", idea="the plain way", bit_equal="all")
def good(case):
    assert case.inputs["note"] == "not an array"
    return lambda: case.out.__setitem__(..., right(case))


@SPEC.variant("2_twin", idea="the same bits, by a plane", bit_equal="all")
def twin(case):
    plane = case.array(case.out.shape, "float32")
    plane[...] = right(case)
    return lambda: case.out.__setitem__(..., plane)


@SPEC.variant("3_returned", idea="returns an array of its own", bit_equal="all")
def returned(case):
    return lambda: right(case)


@SPEC.variant("unwritten", idea="forgets the last element of a row")
def unwritten(case):
    return lambda: case.out.__setitem__((slice(None), slice(0, -1)), right(case)[:, :-1])


@SPEC.variant("behind", idea="writes one element behind the end")
def behind(case):
    def launch():
        case.out[...] = right(case)
        after(case)[:1] = np.float32(7)

    return launch


@SPEC.variant("before", idea="writes two elements before the start")
def before(case):
    def launch():
        case.out[...] = right(case)
        case.out.base[: start(case)].view(np.float32)[-2:] = np.float32(7)

    return launch


@SPEC.variant("wrong_once", idea="one element is wrong, at one shape", bit_equal="all")
def wrong_once(case):
    def launch():
        case.out[...] = right(case)
        if case.shape.rows == 33:
            case.out[32, 1] += np.float32(0.5)

    return launch


@SPEC.variant("other_bits", idea="near enough, but not the same bits", bit_equal="all")
def other_bits(case):
    def launch():
        case.out[...] = right(case)
        case.out[0, 2] = np.nextafter(case.out[0, 2], np.float32(np.inf))

    return launch


@SPEC.variant("by_layout", idea="the bits depend on the pitch", bit_equal="alone")
def by_layout(case):
    def launch():
        case.out[...] = right(case)
        if case.shape.pitch == 16:
            case.out[3, 1] = np.nextafter(case.out[3, 1], np.float32(np.inf))

    return launch


@SPEC.variant("racy", idea="the last bit changes from launch to launch")
def racy(case):
    times = []

    def launch():
        times.append(1)
        case.out[...] = right(case)
        if len(times) % 2 == 0:
            case.out[0, 0] = np.nextafter(case.out[0, 0], np.float32(np.inf))

    return launch


@SPEC.variant("nan", idea="computes a NaN")
def nan(case):
    def launch():
        case.out[...] = right(case)
        case.out[0, 1] = np.float32(np.nan)

    return launch


@SPEC.variant("raises", idea="fails at the launch")
def raises(case):
    def launch():
        raise ValueError("no such\nluck")

    return launch


@SPEC.variant("no_launch", idea="prepare returns nothing")
def no_launch(case):
    return None


@SPEC.variant("wrong_size", idea="returns a transposed output")
def wrong_size(case):
    return lambda: right(case).T.copy() if case.shape.rows > 1 else right(case)


@SPEC.variant("wrong_type", idea="returns float64")
def wrong_type(case):
    return lambda: right(case).astype(np.float64)


@SPEC.variant("fast", idea="the fast kernel runs, as promised", sources=KERNELS, path=lambda shape: "fast")
def fast(case):
    kernel = case.kernel("fast")
    return lambda: kernel((case.shape.rows,), (32,), (case.out, case.inputs["x"], np.int32(case.shape.cols)))


@SPEC.variant("fallback", idea="the slow kernel runs instead", sources=KERNELS, path=lambda shape: "fast")
def fallback(case):
    # Preparing with the fast kernel must not count as having run it.
    case.kernel("fast")((1,), (1,), (case.out, case.inputs["x"], np.int32(case.shape.cols)))
    name = "fast" if case.shape.rows == 1 else "slow"
    return lambda: case.kernel(name)((1,), (32,), (case.out, case.inputs["x"], np.int32(case.shape.cols)))


@SPEC.variant(
    "witness", idea="the witness is set where the gate is open", path=lambda shape: int(shape.pitch % 16 == 0)
)
def witness(case):
    def launch():
        case.out[...] = right(case)
        case.witness[0] = case.shape.pitch % 16 == 0

    return launch


@SPEC.variant("wrong_gate", idea="the gate never opens", path=lambda shape: 1 if shape.pitch % 16 == 0 else 0)
def wrong_gate(case):
    return lambda: case.out.__setitem__(..., right(case))


@SPEC.program("twice")
def twice(run):
    shape = Shape(rows=2, cols=3, pitch=4)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for _ in range(2):
        x[:, :3] = run(shape, {"x": x, "note": "not an array"})
    return x.tobytes()


def start(case):
    """Return where the output starts in its memory, in bytes."""
    return case.out.ctypes.data - case.out.base.ctypes.data


def after(case):
    return case.out.base[start(case) + case.out.nbytes :].view(np.float32)
