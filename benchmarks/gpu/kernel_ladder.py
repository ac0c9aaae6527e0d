"""Time every rung of the bundled ladders on the GPU, unprofiled and interleaved; print a table, write the timings.

    python benchmarks/gpu/kernel_ladder.py [--json FILE] [--rounds N] [SPECIMEN ...]

In each round every variant is launched once between two CUDA events, in an order that is drawn anew, each with its own
copy of the inputs (together they exceed the L2 cache, so that none finds its weights there). What is given is the
median and the quartiles over the rounds. ``with quantising`` puts the quantiser's launch between the same two events,
as a mul_mat from float32 activations needs it. The int8 ceiling is that of benchmarks/gpu/int8_ceiling.cu.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from profiler.build import build
from profiler.launch import Bench
from profiler.loading import resolve
from profiler.specimen import CudaSource

HERE = Path(__file__).resolve().parent
TOKENS = (2630, 512, 4096)
QUANTISER = "2_vector"


def microseconds(calls: list[Callable[[], Any]]) -> float:
    """Return the time from before the first to after the last call, in us of the GPU's clock."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for call in calls:
        call()
    end.record()
    end.synchronize()
    return 1e3 * float(cupy.cuda.get_elapsed_time(start, end))


def interleaved(ladder: dict[str, list[Callable[[], Any]]], rounds: int) -> dict[str, dict[str, float]]:
    """Return median and quartiles of each entry, in us."""
    times: dict[str, list[float]] = {name: [] for name in ladder}
    names = list(ladder)
    for turn in range(rounds + 3):
        random.shuffle(names)
        for name in names:
            spent = microseconds(ladder[name])
            if turn >= 3:
                times[name].append(spent)
    out = {}
    for name, spent in times.items():
        low, median, high = statistics.quantiles(spent, n=4)
        out[name] = {"us": round(median, 2), "low": round(low, 2), "high": round(high, 2), "rounds": rounds}
    return out


def launches(bench: Bench, target: str, tokens: int) -> dict[str, Callable[[], Any]]:
    """Return the launch of every variant of a specimen, each with inputs of its own."""
    spec = resolve(target).specimen
    shape = spec.shape.but(tokens=tokens)
    inputs = spec.make_inputs(shape)
    out = {}
    for variant in spec.variants:
        case = bench.case(spec, variant, shape, inputs)
        out[f"{spec.name}.{variant.name}"] = case.ready()
    return out


def int8_ceiling() -> dict[str, float]:
    """Return the int8 TOPS of mma.sync by shape, with nothing but mma in the loop."""
    source = CudaSource(HERE / "int8_ceiling.cu", ("int8_k16", "int8_k32"))
    bench = Bench()
    cubin = build(source, bench.device.arch, bench.device.nvrtc)
    module = cupy.RawModule(path=str(cubin))
    processors = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    turns, blocks, threads, independent = 20_000, 2 * processors, 256, 8
    out = cupy.zeros(blocks * threads, cupy.int32)
    ceilings = {}
    for entry, macs in (("int8_k16", 16 * 8 * 16), ("int8_k32", 16 * 8 * 32)):
        kernel = module.get_function(entry)

        def call(kernel: Any = kernel) -> None:
            kernel((blocks,), (threads,), (out, np.int32(turns)))

        spent = statistics.median(microseconds([call]) for _ in range(9))
        ceilings[f"m16n8{entry[5:]}"] = round(2e-6 * macs * independent * turns * blocks * threads / 32 / spent, 1)
    return ceilings


def main() -> None:
    """Time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("specimens", nargs="*", default=["q6k", "q4k"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    bench = Bench()
    found: dict[str, Any] = {"gpu": bench.gpu, "ceiling_tops": int8_ceiling(), "us": {}}
    print(f"{bench.gpu}; int8 mma.sync ceiling: {found['ceiling_tops']} TOPS")
    for tokens in TOKENS:
        quantise = launches(bench, "q8", tokens)[f"q8.{QUANTISER}"]
        ladder: dict[str, list[Callable[[], Any]]] = {"q8": [quantise]}
        for target in options.specimens:
            calls = launches(bench, target, tokens)
            ladder |= {name: [call] for name, call in calls.items()}
            last = list(calls)[-1]
            ladder[f"{last} with quantising"] = [quantise, calls[last]]
        timed = interleaved(ladder, options.rounds)
        found["us"][str(tokens)] = timed
        print(f"\n{tokens} tokens x 3584 rows x 3584: us, median (quartiles) of {options.rounds} interleaved rounds")
        for name in ladder:
            row = timed[name]
            print(f"  {name:40} {row['us']:9.1f}  ({row['low']:.1f} - {row['high']:.1f})")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
