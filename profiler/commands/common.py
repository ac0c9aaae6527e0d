"""What the report commands share: options, launch selection, the console, where output goes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profiler.errors import UsageError
from profiler.model import Report, Work

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from profiler.ncu_parse import Reading
    from profiler.sidecar import Sidecar

FORMATS = ("table", "json", "csv", "markdown", "parquet")


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format and --output."""
    command = click.option(
        "-o", "--output", type=click.Path(dir_okay=False), help="Write to a file, whole or not at all."
    )(command)
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Output format.",
    )(command)


def work_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --macs and --gemm."""
    command = click.option("--gemm", multiple=True, metavar="M,N,K", help="Declared work as matrix sizes: M*N*K MACs.")(
        command
    )
    return click.option("--macs", multiple=True, metavar="N", help="Declared work in MACs, e.g. 33.78e9.")(command)


def parse_work(macs: Sequence[str], gemm: Sequence[str]) -> list[Work]:
    """Return the declared work, one entry for each option given. Raises UsageError for anything malformed."""
    if macs and gemm:
        raise UsageError("--macs and --gemm both declare work: give one of them")
    found = []
    for text in macs:
        try:
            found.append(Work(float(text)))
        except ValueError:
            raise UsageError(f"--macs takes a number such as 33.78e9, not {text!r}") from None
    for text in gemm:
        sizes = re.split(r"[,x ]+", text.strip())
        if len(sizes) != 3 or not all(s.isdigit() for s in sizes):
            raise UsageError(f"--gemm takes M,N,K such as 2630,3584,3584, not {text!r}")
        found.append(Work.gemm(*map(int, sizes)))
    return found


def sidecar_of(path: str) -> Sidecar | None:
    """Return what cyinst profile wrote beside a report; one that does not fit is told on stderr and left out."""
    if not Path(f"{path.removesuffix('.ncu-rep')}.cyinst.json").exists():
        # Most reports have none, and hashing is not to be imported for those.
        return None
    from profiler import sidecar
    from profiler.errors import ReportError

    try:
        return sidecar.read(Path(path))
    except ReportError as error:
        click.echo(f"cyinst: {error}", err=True)
        return None


def declared(work: Sequence[Work], sidecars: Sequence[Sidecar | None]) -> list[Work | None]:
    """Return the work of each report: as many as were given on the command line, else what its sidecar declares."""
    if work:
        return [work[min(i, len(work) - 1)] for i in range(len(sidecars))]
    return [None if one is None else one.work for one in sidecars]


def load_for_books(
    paths: Sequence[str],
    needed: Sequence[str],
    by_instruction: bool = False,
    beside: Callable[[], object] = lambda: None,
) -> list[Report]:
    """Read what the books need of each report, and say on stderr what of it could not be read.

    ``by_instruction`` also reads what attribution needs: counts and samples of each instruction, sources. Child
    processes read; meanwhile this one calls ``beside`` and imports the modules ``needed`` to analyse and draw.
    """
    with ExitStack() as stack:
        reading: list[Reading] = []
        for path in paths:
            reading.append(_start(path, by_instruction))
            stack.callback(reading[-1].cancel)
        beside()
        for module in needed:
            import_module(module)
        reports = [one.result() for one in reading]
    for report in reports:
        for problem in report.problems:
            click.echo(f"cyinst: {report.path}: {problem}", err=True)
    return reports


def _start(path: str, by_instruction: bool) -> Reading:
    from profiler.ncu_parse import start
    from profiler.vocabulary import metrics_for_accounting, metrics_for_attribution

    if by_instruction:
        return start(path, metrics=metrics_for_attribution())
    return start(path, metrics=metrics_for_accounting(), instances=False, sources=False)


def shown_path(path: Path) -> str:
    """Return a path as a person would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def console_for(stream: Any = None) -> Console:
    """Return a rich console: at most 100 columns, plain text when the output is no terminal."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 80
    console.width = max(60, min(console.width, 100))
    return console


def emit(
    form: str,
    output: str | None,
    *,
    document: Callable[[], dict[str, Any]],
    rows: Callable[[], list[dict[str, Any]]],
    frame: Callable[[], pd.DataFrame],
    markdown: Callable[[], str],
    draw: Callable[[Console], None],
) -> None:
    """Write a result in the form asked for, to stdout or to a file that appears only when it is complete."""
    if form == "table":
        emit_text(form, output, None, draw)
        return
    from profiler import export

    if form == "parquet":
        if output is None:
            raise UsageError("--format parquet writes a file: add --output FILE")
        export.write_parquet(frame(), output)
        return
    text = {
        "json": lambda: export.to_json(document()),
        "csv": lambda: export.to_csv(rows()),
        "markdown": markdown,
    }[form]
    emit_text(form, output, text(), draw)


def emit_text(form: str, output: str | None, text: str | None, draw: Callable[[Console], None]) -> None:
    """Write text, or what ``draw`` prints when ``text`` is None, to stdout or whole to a file."""
    if text is None and output is None:
        draw(console_for())
        return
    if text is None:
        import io

        buffer = io.StringIO()
        draw(console_for(buffer))
        text = buffer.getvalue()
    if output is not None:
        from profiler.export import write_text

        write_text(text, output)
    else:
        sys.stdout.write(text)
