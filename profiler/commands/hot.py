"""``cyinst hot``: name the culprit, from sampled stall to producer, source line and region."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from profiler.commands import common
from profiler.errors import NoMatchError, ReportError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.blame import Hot
    from profiler.cubin import CodeReader

BY = ("cause", "culprit", "instruction", "line", "region", "state")
STATES = (
    "long_scoreboard short_scoreboard wait math_pipe_throttle mio_throttle lg_throttle tex_throttle barrier membar "
    "branch_resolving dispatch_stall no_instruction imc_miss gmma drain sleeping misc selected not_selected"
).split()
FORMATS = ("table", "json", "csv", "markdown", "collapsed", "speedscope")


@click.command(name="hot")
@click.argument("path", type=click.Path())
@click.option("--launch", type=int, metavar="N", help="The launch with this index [default: the longest].")
@click.option("--kernel", metavar="REGEX", help="Among launches whose kernel function name matches.")
@click.option("--by", type=click.Choice(BY), default="cause", show_default=True, help="What to rank.")
@click.option("--state", type=click.Choice(STATES), metavar="STATE", help="One warp state, e.g. long_scoreboard.")
@click.option("--around", metavar="OFFSET", help="The SASS around an offset (hexadecimal, as --sass prints it).")
@click.option("--sass", is_flag=True, help="The whole listing, with samples, executed counts, live registers, control.")
@click.option(
    "--source", type=click.Path(exists=True, file_okay=False), help="Folder of sources, if none are embedded."
)
@click.option("--regions", type=click.Path(exists=True, dir_okay=False), help="TOML file of named regions.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Rows per table [default: 10].")
@common.work_options
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to a file, whole or not at all.")
def command(
    path: str,
    launch: int | None,
    kernel: str | None,
    by: str,
    state: str | None,
    around: str | None,
    sass: bool,
    source: str | None,
    regions: str | None,
    limit: int | None,
    macs: tuple[str, ...],
    gemm: tuple[str, ...],
    form: str,
    output: str | None,
) -> None:
    """Name the instructions that the warps of a launch wait for, with source lines and regions.

    Reads the machine code inside the report; needs PC samples (--section SourceCounters), but no GPU. Regions are
    marked in the source by // @region NAME ... // @end, in a TOML file, or are the inlined functions.
    """
    work = common.parse_work(macs, gemm)
    if len(work) > 1:
        raise UsageError("hot takes the work of one launch: give --macs or --gemm once")
    drawing = "dashboards.terminal.hot" if form == "table" else "profiler.export_hot"
    code: list[CodeReader] = []
    ahead: list[Future[None]] = []

    def disassemble() -> None:
        from profiler.cubin import CodeReader

        # Whatever is wrong with the file, reading it says so; a report without code is no error here.
        with suppress(ReportError):
            # Opened before the thread starts: nvdisasm takes longest, and must not wait for the imports that follow.
            code.append(CodeReader(path))
            ahead.append(pool.submit(code[0].prefetch))

    with ThreadPoolExecutor(1) as pool:
        # Reading and disassembling are other processes: both at once, while this one imports.
        needed = (drawing, "profiler.attribution")
        (report,) = common.load_for_books([path], needed, by_instruction=True, beside=disassemble)
        for one in ahead:
            one.result()
    from profiler import attribution
    from profiler.selection import longest_sampled, select

    chosen = longest_sampled(select(report, kernel, launch))
    result = attribution.attribute_launch(
        report,
        chosen,
        work=common.declared(work, [common.sidecar_of(path)])[0],
        source_folder=source,
        toml=attribution.region_text(regions),
        reader=code[0] if code else None,
    )

    if sass and not result.hot.code.functions:
        raise ReportError(f"{path}: there is no machine code to list: {result.hot.code.problems[0]}")

    def draw(console: Console) -> None:
        from dashboards.terminal import hot as drawing
        from profiler.vocabulary import WarpState

        if sass or around is not None:
            live = attribution.live_registers(result.hot) if sass else None
            at = None if around is None else _offset(around, result.hot)
            for part in drawing.listing(result.hot, result.sources, around=at, live=live, lines=limit or 10):
                console.print(part)
            return
        drawing.draw_hot(console, result.hot, by, WarpState(state) if state else None, limit, result.sources)

    common.emit_text(form, output, _text(form, result.hot), draw)


def _text(form: str, hot: Hot) -> str | None:
    """Return the text of a data format, None for the table."""
    if form == "table":
        return None
    from profiler import export, export_hot

    if form == "json":
        return export.to_json(export_hot.hot_document(hot))
    if form == "csv":
        return export.to_csv(export_hot.hot_rows(hot))
    if form == "collapsed":
        return export_hot.collapsed(hot)
    if form == "speedscope":
        return export.to_json(export_hot.speedscope(hot))
    from dashboards.markdown_hot import hot_markdown

    return hot_markdown(hot)


def _offset(text: str, hot: Hot) -> tuple[str, int]:
    try:
        offset = int(text, 16)
    except ValueError:
        raise UsageError(f"--around takes a hexadecimal offset such as 1f40, not {text!r}") from None
    for function in hot.code.functions.values():
        if offset in function.by_offset:
            return function.name, offset
    sizes = ", ".join(f"{f.name} ({f.size:#x} bytes)" for f in hot.code.functions.values()) or "no code"
    raise NoMatchError(f"there is no instruction at {offset:#x}; the launch has {sizes}")
