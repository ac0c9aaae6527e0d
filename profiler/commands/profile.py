"""``cyinst profile``: capture one launch with ncu, and close its books."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from profiler.commands import common
from profiler.errors import UsageError

if TYPE_CHECKING:
    from profiler.session import Options


class WithProgram(click.Command):
    """A command that leaves everything after ``--`` alone: a program and its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the program aside, and parse the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["program"] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])


@click.command(name="profile", cls=WithProgram, options_metavar="[OPTIONS]")
@click.argument("specs", nargs=-1, metavar="SPEC[:VARIANT,...]... | -- COMMAND [ARGS]...")
@click.option("--plan", default="quick", show_default=True, metavar="PLAN", help="What to collect: quick, books, full.")
@click.option("--metrics", metavar="NAMES", help="More metrics, separated by commas.")
@click.option("--shape", metavar="SIZES", help="Of a specimen: tokens=512,k=4096 or 512x3584x4096.")
@click.option("--kernel", metavar="REGEX", help="The first launch whose kernel function name matches.")
@click.option("--nvtx", metavar="RANGE", help="Launches inside NVTX range NAME or DOMAIN@NAME alone.")
@click.option("--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Skip N matching launches (warm-up).")
@click.option("-o", "--output", type=click.Path(), help="A .ncu-rep file, or a folder [default: cyinst-captures].")
@click.option("--force", is_flag=True, help="Replace a report that is there.")
@click.option("--timeout", type=click.FloatRange(min=0), default=600.0, show_default=True, metavar="SECONDS",
              help="End ncu and the program after so long; 0 for no limit.")  # fmt: skip
@click.option("--samples", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
              help="Run again, sampling more often, below N samples; 0: never.")  # fmt: skip
@click.option(
    "--interval", type=click.IntRange(0, 31), metavar="I", help="Sample every 2^(5+I) cycles [default: auto]."
)
@click.option("--clock-control", type=click.Choice(("none", "base")), default="none", show_default=True,
              help="none leaves the clocks alone; base locks them while profiling.")  # fmt: skip
@click.option("--cache-control", type=click.Choice(("all", "none")), default="all", show_default=True,
              help="all flushes the caches before each pass.")  # fmt: skip
@click.option("--replay", type=click.Choice(("kernel", "application", "range", "app-range")), default="kernel",
              show_default=True, help="What is run again for each pass.")  # fmt: skip
@click.option("--ncu", metavar="PATH", help="The ncu to use [default: on PATH, else in the usual places].")
@click.option("--split-waits", type=click.Choice(("oldest", "youngest")),
              help="Of a specimen: wait for joint loads one by one, this one first.")  # fmt: skip
@click.option("--hot", is_flag=True, help="Also name the culprits, as cyinst hot does.")
@click.option("--dry-run", is_flag=True, help="Print the command line of ncu and stop; needs no GPU.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="Output format.")  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, specs: tuple[str, ...], form: str, hot: bool, dry_run: bool, **given: Any) -> None:
    """Capture one launch with Nsight Compute, verify that it is the one, and close its books.

    SPEC names variants of a specimen: each is launched by cyinst launch, after its warm-up, and several end in the
    comparison of each with the first. COMMAND is any program that launches kernels: without --kernel, --nvtx or --skip
    its very first launch is taken. Nothing is kept of a program that fails; the exit code is 9 when ncu leaves no
    report of the launch.
    """
    from profiler import session

    options: Options = session.Options(**given)
    targets = session.targets(specs, ctx.meta["program"], options)
    if dry_run:
        for line in session.dry_run(targets, options):
            click.echo(line)
        return
    if hot and form != "table":
        raise UsageError("--hot prints tables: ask cyinst hot --format json of the report")

    def progress(text: str) -> None:
        # Only for a person who watches: a line that the next one overwrites.
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text[:90]}", nl=False, err=True)

    for doubt in session.preflight(options):
        click.echo(f"cyinst: {doubt}", err=True)
    try:
        profiled = session.run(targets, options, progress)
    finally:
        progress("")
    if form == "json":
        from profiler.export import to_json

        click.echo(to_json(session.document(profiled)), nl=False)
        return
    from dashboards.terminal import profile as drawing

    console = common.console_for()
    for i, one in enumerate(profiled.captures):
        place = common.shown_path(one.path.resolve())
        drawing.draw_capture(console, place, one.sidecar, one.report.conditions, profiled.accounts[i], options.samples)
        drawing.draw_metrics(console, profiled.metrics(i))
        if hot:
            from profiler.commands.hot import command as hot_command

            ctx.invoke(hot_command, path=str(one.path))
    if profiled.comparisons:
        from dashboards.terminal.compare import draw_comparisons

        draw_comparisons(console, profiled.comparisons, ((), ()), len(profiled.comparisons))
