"""``cyinst verify``: check the variants of a specimen against its reference and against each other."""

from __future__ import annotations

import sys

import click

from profiler.commands import common
from profiler.errors import IncorrectError

FORMATS = ("table", "json", "markdown")


@click.command(name="verify")
@click.argument("spec", metavar="SPEC[:VARIANT,...]")
@click.option("--shape", "shapes", metavar="SIZES", multiple=True, help="This shape instead of the sweep (repeatable).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--list", "listing", is_flag=True, help="Show variants, groups and shapes; needs no GPU.")
@click.option("--programs/--no-programs", default=True, help="Run the specimen's whole programs too [default: do].")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to a file, whole or not at all.")
def command(
    spec: str, shapes: tuple[str, ...], seed: int, listing: bool, programs: bool, form: str, output: str | None
) -> None:
    """Check every variant of a specimen on a sweep of shapes: parity before speed.

    SPEC is a folder with spec.py, a .py file, or the name of a bundled specimen. Each launch starts from an output of
    NaN inside guards; results are compared with the float64 reference, with a second launch and, to the bit, within
    their group, and the path that was promised must have run. The exit code is 7 when a check fails.
    """
    from profiler import export
    from profiler.loading import resolve

    specimen, names, _ = resolve(spec)
    variants = specimen.pick(names)
    sweep = tuple(specimen.shape_from(text) for text in shapes) or specimen.sweep
    if listing:
        from dashboards.terminal import verify as drawing
        from profiler.verify import describe

        text = None
        if form == "json":
            text = export.to_json(describe(specimen, variants, sweep))
        elif form == "markdown":
            text = drawing.listing_markdown(specimen, variants, sweep)
        common.emit_text(form, output, text, lambda console: drawing.draw_listing(console, specimen, variants, sweep))
        return
    from profiler.launch import Bench
    from profiler.verify import verify

    def progress(what: str) -> None:
        # Only for a person who watches: a line that the next one overwrites.
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{what}", nl=False, err=True)

    try:
        result = verify(specimen, variants, Bench(), sweep, seed, programs, progress)
    finally:
        progress("")
    from dashboards.terminal import verify as drawing

    text = export.to_json(result.to_dict()) if form == "json" else None
    if form == "markdown":
        text = drawing.markdown(result)
    common.emit_text(form, output, text, lambda console: drawing.draw(console, result))
    if not result.ok:
        raise IncorrectError(f"{specimen.name}: {drawing.verdict_line(result)}")
