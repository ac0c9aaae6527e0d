"""``cyinst report``: account for every cycle of the launches in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from profiler.commands import common
from profiler.errors import UsageError
from profiler.selection import select

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


@click.command(name="report")
@click.argument("path", type=click.Path())
@click.option("--launch", type=int, metavar="N", help="Only the launch with this index.")
@click.option("--kernel", metavar="REGEX", help="Only launches whose kernel function name matches.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N longest launches.")
@click.option("--details", is_flag=True, help="The books of every selected launch, not of the longest alone.")
@common.work_options
@common.output_options
def command(
    path: str,
    launch: int | None,
    kernel: str | None,
    limit: int | None,
    details: bool,
    macs: tuple[str, ...],
    gemm: tuple[str, ...],
    form: str,
    output: str | None,
) -> None:
    """Account for every cycle of the launches in an Nsight Compute report (.ncu-rep).

    Prints what bounds each launch and why: issue slots and what emptied them, warp cycles per issued instruction by
    state, the time identity, throughputs, occupancy, instructions. Needs no GPU.
    """
    work = common.parse_work(macs, gemm)
    if len(work) > 1:
        raise UsageError("report takes the work of one launch: give --macs or --gemm once")
    drawing = "dashboards.terminal.report" if form == "table" else "profiler.export"
    (report,) = common.load_for_books([path], ("profiler.accounting", drawing))
    launches = select(report, kernel, launch)
    if limit is not None:
        longest = sorted(launches, key=lambda x: -(x.number("gpu__time_duration.sum") or 0.0))[:limit]
        launches = [x for x in launches if x in longest]
    from profiler.accounting import account

    sidecar = common.sidecar_of(path)
    (declared,) = common.declared(work, [sidecar])
    accounts = [account(x, declared) for x in launches]

    def draw(console: Console) -> None:
        from dashboards.terminal.report import draw_report

        longest = max(accounts, key=lambda a: a.duration_ns or 0.0)
        draw_report(console, path, report.conditions, accounts, accounts if details else [longest], sidecar)

    def markdown() -> str:
        from dashboards.markdown import report_markdown

        return report_markdown(path, report.conditions, accounts)

    # The table has no use for the module that writes the other forms.
    def document() -> dict[str, Any]:
        from profiler.export import report_document

        return report_document(report, accounts)

    def rows() -> list[dict[str, Any]]:
        from profiler.export import report_rows

        return report_rows(accounts)

    def frame() -> pd.DataFrame:
        from profiler.export import report_frame

        return report_frame(accounts)

    common.emit(
        form,
        output,
        document=document,
        rows=rows,
        frame=frame,
        markdown=markdown,
        draw=draw,
    )
