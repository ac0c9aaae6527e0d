"""Time both kernels of every planted pair on the GPU, unprofiled and interleaved; print a table, write the timings.

    python benchmarks/gpu/planted_pairs.py [--json FILE] [--rounds N] [NAME ...]

In each round each kernel is launched once between two CUDA events, in an order that is drawn anew. What is given is the
median and the quartiles over the rounds, and the gain: 1 - fixed / guilty, of the medians.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kernel_ladder import interleaved

from profiler.launch import Bench
from profiler.loading import bundled, resolve


def main() -> None:
    """Time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    bench = Bench()
    found: dict[str, Any] = {"gpu": bench.gpu, "rounds": options.rounds, "us": {}}
    print(f"{bench.gpu}; us, median (quartiles) of {options.rounds} interleaved rounds")
    for name in options.names or [n.removeprefix("planted/") for n in bundled() if n.startswith("planted/")]:
        spec = resolve(f"planted/{name}").specimen
        inputs = spec.make_inputs(spec.shape)
        calls = {v.name: [bench.case(spec, v, spec.shape, inputs).ready()] for v in spec.variants}
        times = interleaved(calls, options.rounds)
        found["us"][name] = times
        shown = "  ".join(f"{v} {t['us']:9.1f} ({t['low']:.1f} - {t['high']:.1f})" for v, t in times.items())
        gain = 100.0 * (1.0 - times["fixed"]["us"] / times["guilty"]["us"])
        print(f"  {name:20} {shown}  gain {gain:5.1f} %", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
