"""The q6_K ladder on a GPU: every rung right, both expansions the same, and planted bugs found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from planted_bug import KERNELS
from q6k_bugs import BUGS, Bug

from profiler.launch import Bench, Kernel
from profiler.loading import load_specimen, neighbour
from profiler.specimen import CudaSource, Shape
from profiler.verify import Verification, verify

pytestmark = pytest.mark.gpu

SPEC = load_specimen(KERNELS / "q6k")
RUNGS = tuple(variant.name for variant in SPEC.variants)
q6k = neighbour(KERNELS / "q6k" / "spec.py", "../formats/q6k.py")
# In a process of its own: a misaligned load ends the CUDA context.
CHILD = """
import json, sys
from pathlib import Path
from profiler.launch import Bench
from profiler.loading import load_specimen
from profiler.specimen import Shape
from profiler.verify import verify
folder, variant, sizes = sys.argv[1:]
specimen = load_specimen(Path(folder))
done = verify(specimen, specimen.pick((variant,)), Bench(), [Shape(json.loads(sizes))], programs=False)
print(json.dumps([(check.verdict, "; ".join(check.problems)) for check in done.checks]))
"""


@pytest.fixture(scope="module")
def bench() -> Bench:
    pytest.importorskip("cupy")
    return Bench()


@pytest.fixture(scope="module")
def verification(bench: Bench) -> Verification:
    """The whole sweep, every rung."""
    return verify(SPEC, tuple(SPEC.variants), bench, seed=11)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_is_right_at_every_shape_and_pitch(verification: Verification, rung: str) -> None:
    checks = verification.of(rung)
    assert len(checks) == len(SPEC.sweep)
    assert [(c.shape, c.problems) for c in checks if c.verdict != "ok"] == []
    assert all(c.path_ok for c in checks)


def test_rungs_of_the_group_have_the_same_bits_at_both_pitches(verification: Verification) -> None:
    group = {variant.name for variant in SPEC.variants if variant.bit_equal == "k16"}
    assert len(group) >= 7
    alone = {(c.shape["tokens"], c.shape["rows"]): c.variant for c in verification.checks
             if c.variant in group and c.same_bits_as is None}  # fmt: skip
    # One leads for each problem, whatever the pitch.
    assert set(alone.values()) == {"1_bytes"}
    assert len(alone) == len({(s.tokens, s.rows, s.k) for s in SPEC.sweep})


def test_both_expansions_agree_over_half_a_million_weights(bench: Bench) -> None:
    count, pitch = 2048, 224
    blocks = q6k.random_blocks(count, np.random.default_rng(3))
    device = bench.device
    stored = device.upload(q6k.to_pitch(blocks, pitch))
    out, differing = device.empty((count, 256), "int8"), device.upload(np.zeros(1, np.uint32))
    source = CudaSource(KERNELS / "q6k" / "expand_check.cu", ("q6k_expand_check",))
    kernel = Kernel("q6k_expand_check", bench.function(source, "q6k_expand_check"), [])
    kernel((count * 16 // 256,), (256,), (stored, np.int32(count), np.int32(pitch), out, differing))
    device.synchronise()
    assert int(device.download(differing)[0]) == 0
    assert out.size >= 512_000
    assert np.array_equal(device.download(out), q6k.levels(blocks))


@pytest.mark.parametrize("pitch", [210, 224])
@pytest.mark.parametrize("rung", RUNGS)
def test_rows_of_a_real_model_are_multiplied_right(bench: Bench, rung: str, pitch: int) -> None:
    rows, k, tokens = 32, 3584, 77
    blocks = np.fromfile(KERNELS / "data" / "qwen_7b_output_weight.q6k.bin", np.uint8).reshape(-1, q6k.BYTES)
    shape = Shape(tokens=tokens, rows=rows, k=k, pitch=pitch)
    inputs = {**SPEC.make_inputs(shape, seed=5), "weights": q6k.to_pitch(blocks, pitch)}
    (variant,) = SPEC.pick((rung,))
    case = bench.case(SPEC, variant, shape, inputs)
    case.launch()
    expected = SPEC.make_reference(shape, inputs)
    assert np.linalg.norm(case.result() - expected) <= SPEC.tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_makes_verify_fail(bug: Bug, tmp_path: Path) -> None:
    folder = bug.plant(tmp_path / "kernels")
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    words = [sys.executable, "-c", CHILD, str(folder), bug.variant, json.dumps(bug.shape)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout, done.stderr
    ((verdict, problems),) = json.loads(done.stdout.splitlines()[-1])
    assert (verdict, bug.why in problems) == (bug.verdict, True), problems
