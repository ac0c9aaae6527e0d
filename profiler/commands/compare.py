"""``cyinst compare``: explain the change in time between two launches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from profiler.commands import common
from profiler.errors import NoMatchError, NotComparableError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.compare import Comparison
    from profiler.model import LaunchProfile, Report, Work


@click.command(name="compare")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--launch", metavar="A:B", help="Compare launch A of BEFORE with launch B of AFTER.")
@click.option("--kernel", metavar="REGEX", help="Only launches whose kernel function name matches.")
@click.option(
    "--pair", "pair_by", type=click.Choice(["auto", "kernel", "nvtx"]), default="auto", show_default=True,
    help="How launches find their partner.",
)  # fmt: skip
@click.option("--per-work", is_flag=True, help="Compare times per declared GMAC (launches of different work).")
@click.option("--force", is_flag=True, help="Explain even what must not be compared; the reasons stay visible.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Explain the N largest changes [default: 1].")
@click.option(
    "--hot", is_flag=True,
    help="Split the explained changes by region and by what is waited for (not in csv and parquet: they are the sum).",
)  # fmt: skip
@click.option(
    "--regions", type=click.Path(exists=True, dir_okay=False),
    help="TOML file of named regions, for --hot [default: source comments, or inlined functions].",
)  # fmt: skip
@click.option(
    "--regions-after", type=click.Path(exists=True, dir_okay=False), help="Another one for AFTER, if lines moved."
)  # fmt: skip
@common.work_options
@common.output_options
def command(
    before: str,
    after: str,
    launch: str | None,
    kernel: str | None,
    pair_by: str,
    per_work: bool,
    force: bool,
    limit: int | None,
    hot: bool,
    regions: str | None,
    regions_after: str | None,
    macs: tuple[str, ...],
    gemm: tuple[str, ...],
    form: str,
    output: str | None,
) -> None:
    """Explain the change in time from BEFORE to AFTER, two Nsight Compute reports (.ncu-rep).

    Splits the change exactly into instructions (by opcode class), cycles per instruction (by warp state), active
    warps, active share and clock. --gemm or --macs given twice declare the work of BEFORE and of AFTER. --hot matches
    the machine code of both builds by region: executed instructions of each, and the cycles spent waiting for it.
    """
    work = common.parse_work(macs, gemm)
    if len(work) > 2:
        raise UsageError("compare takes the work of two launches: give --macs or --gemm once or twice")
    if (regions or regions_after) and not hot:
        raise UsageError("--regions names the parts that --hot explains: add --hot")
    files = (regions, regions_after or regions) if hot else None
    run(before, after, work, launch, kernel, pair_by, per_work, force, limit, form, output, files)


def run(
    before: str,
    after: str,
    work: list[Work],
    launch: str | None = None,
    kernel: str | None = None,
    pair_by: str = "auto",
    per_work: bool = False,
    force: bool = False,
    limit: int | None = None,
    form: str = "table",
    output: str | None = None,
    hot: tuple[str | None, str | None] | None = None,
) -> None:
    """Load, pair, explain and write; raises NotComparableError after writing when every pair was refused.

    ``hot`` are the region files (or None) of both sides; without it nothing is explained by region.
    """
    from profiler import export
    from profiler.accounting import account
    from profiler.compare import explain, largest
    from profiler.pairing import pair_launches
    from profiler.selection import select

    indices = _launch_pair(launch)
    # The rows of a table of data must sum to the change; a second split of the same terms has no place there.
    by_region = hot if form not in ("csv", "parquet") else None
    drawing = "dashboards.terminal.compare" if form == "table" else "profiler.export"
    reports = common.load_for_books([before, after], ("profiler.compare", drawing), by_region is not None)
    sides = [select(r, kernel, i) for r, i in zip(reports, indices, strict=True)]
    left: list[LaunchProfile] = []
    right: list[LaunchProfile] = []
    if launch is not None:
        pairs = [(sides[0][0], sides[1][0])]
    else:
        pairs, left, right = pair_launches(sides[0], sides[1], by=pair_by)
    if not pairs:
        raise NoMatchError(f"no launch of {before} pairs with one of {after} by {pair_by}: name them with --launch A:B")
    declared = common.declared(work, [common.sidecar_of(before), common.sidecar_of(after)])
    conditions = reports[0].conditions, reports[1].conditions
    comparisons = [
        explain(
            account(b, declared[0]),
            account(a, declared[1]),
            conditions=conditions,
            per_work=per_work,
            force=force,
        )
        for b, a in pairs
    ]
    if by_region is not None:
        shown = largest(comparisons, limit)
        comparisons = [
            _with_regions(c, (reports[0], reports[1]), by_region) if any(c is x for x in shown) else c
            for c in comparisons
        ]

    def draw(console: Console) -> None:
        from dashboards.terminal.compare import draw_comparisons

        draw_comparisons(console, comparisons, (left, right), limit)

    def markdown() -> str:
        from dashboards.markdown import comparison_markdown

        return comparison_markdown(comparisons)

    common.emit(
        form,
        output,
        document=lambda: export.comparisons_document(comparisons, (left, right)),
        rows=lambda: export.comparison_rows(comparisons),
        frame=lambda: export.comparison_frame(comparisons),
        markdown=markdown,
        draw=draw,
    )
    if not force and all(c.refusals for c in comparisons):
        raise NotComparableError(f"{comparisons[0].sentence} --force explains it all the same")


def _with_regions(
    c: Comparison, reports: tuple[Report, Report], region_files: tuple[str | None, str | None]
) -> Comparison:
    """Attribute both launches, side by side, and explain the change by region; a refused pair stays as it is."""
    from concurrent.futures import ThreadPoolExecutor

    from profiler.align import with_regions
    from profiler.attribution import attribute_launch, region_text

    if c.refusals and not c.factors:
        return c
    texts = [region_text(f) for f in region_files]
    with ThreadPoolExecutor(2) as pool:
        pending = [
            pool.submit(attribute_launch, report, side.launch, toml=toml)
            for report, side, toml in zip(reports, (c.before, c.after), texts, strict=True)
        ]
        before, after = (one.result().hot for one in pending)
    return with_regions(c, before, after)


def _launch_pair(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if found is None:
        raise UsageError(f"--launch takes A:B, two launch indices, not {text!r}")
    return int(found[1]), int(found[2] or found[1])
