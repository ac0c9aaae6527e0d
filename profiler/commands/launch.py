"""``cyinst launch``: variants of a specimen inside NVTX ranges, for ncu or any other profiler to capture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click


@click.command(name="launch")
@click.argument("spec", metavar="SPEC[:VARIANT,...]")
@click.option("--shape", metavar="SIZES", help="tokens=512,k=4096 or 512x3584x4096 [default: the specimen's].")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Launches before, outside the range."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Launches, each in the range.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option(
    "--split-waits", type=click.Choice(("oldest", "youngest")), help="Wait for joint loads one by one, this one first."
)
def command(spec: str, shape: str | None, warmup: int, repeat: int, seed: int, split_waits: str | None) -> None:
    """Launch variants (all of them by default), each inside its NVTX range; say which filter makes ncu capture it.

    Preparation and warm-up lie outside the range. The result is not checked: cyinst verify does that. --split-waits
    launches copies of the kernels that wait for joint loads one after another: the results are the same, and samples
    tell which load is late.
    """
    from profiler.launch import Bench
    from profiler.loading import resolve
    from profiler.targets import FACTS

    specimen, names, _ = resolve(spec)
    wanted = specimen.shape_from(shape)
    variants, work = specimen.pick(names), specimen.work_of(wanted)
    bench = Bench(split_waits=split_waits)
    inputs = specimen.make_inputs(wanted, seed)
    for variant in variants:
        case = bench.case(specimen, variant, wanted, inputs)
        case.prepare()
        for _ in range(warmup):
            case.launch(warm_up=True)
        case.poison()
        for _ in range(repeat):
            case.launch()
        if case.launched and (facts := os.environ.get(FACTS)):
            # For cyinst profile. What other libraries launched is not known here.
            Path(facts).write_text(json.dumps({"kernels": case.launched}), encoding="utf-8")
        parts = [
            f"{repeat} launch{'es' if repeat > 1 else ''} of {specimen.name}:{variant.name} ({wanted})",
            *([f"kernels {', '.join(dict.fromkeys(case.launched))}"] if case.launched else []),
            *([f"{work.gmac:.4g} GMAC each"] if work else []),
            bench.gpu,
            *([f"{bench.split} joint waits split, {bench.left} left"] if split_waits else []),
            f"capture with ncu --nvtx --nvtx-include {case.filter}",
        ]
        click.echo("; ".join(parts))
