"""``cyinst launch``: one variant of a specimen inside an NVTX range, for ncu or any other profiler to capture."""

from __future__ import annotations

import click

from profiler.errors import UsageError


@click.command(name="launch")
@click.argument("spec", metavar="SPEC:VARIANT")
@click.option("--shape", metavar="SIZES", help="tokens=512,k=4096 or 512x3584x4096 [default: the specimen's].")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Launches before, outside the range."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Launches, each in the range.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
def command(spec: str, shape: str | None, warmup: int, repeat: int, seed: int) -> None:
    """Launch one variant inside an NVTX range, and say which filter makes ncu capture it alone.

    Preparation and warm-up lie outside the range. The result is not checked: cyinst verify does that.
    """
    from profiler.launch import Bench
    from profiler.loading import resolve

    specimen, names, _ = resolve(spec)
    if len(names) != 1:
        have = ", ".join(variant.name for variant in specimen.variants)
        raise UsageError(f"launch takes one variant: {specimen.name}:NAME with NAME one of {have}")
    (variant,) = specimen.pick(names)
    wanted = specimen.shape_from(shape)
    bench = Bench()
    case = bench.case(specimen, variant, wanted, specimen.make_inputs(wanted, seed))
    case.prepare()
    for _ in range(warmup):
        case.launch(warm_up=True)
    case.poison()
    for _ in range(repeat):
        case.launch()
    work = specimen.work_of(wanted)
    parts = [
        f"{repeat} launch{'es' if repeat > 1 else ''} of {specimen.name}:{variant.name} ({wanted})",
        *([f"kernels {', '.join(dict.fromkeys(case.launched))}"] if case.launched else []),
        *([f"{work.gmac:.4g} GMAC each"] if work else []),
        bench.gpu,
        f"capture with ncu --nvtx --nvtx-include {case.filter}",
    ]
    click.echo("; ".join(parts))
