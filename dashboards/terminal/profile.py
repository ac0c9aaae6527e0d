"""Captures -> what ``cyinst profile`` shows: each one's own lines, its books, and the metrics that were asked for."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from dashboards import units
from dashboards.terminal import bars
from dashboards.terminal.capture import capture_lines
from dashboards.terminal.layout import indented
from dashboards.terminal.report import conditions_line, launch_parts
from profiler.books import Account
from profiler.model import Conditions, Metric
from profiler.sampling import ENOUGH
from profiler.sidecar import Sidecar


def draw_capture(
    console: Console, path: str, s: Sidecar, conditions: Conditions, account: Account, enough: int = ENOUGH
) -> None:
    """Print the lines of a capture, where its report lies, and the books of its launch."""
    for part in capture_lines(s, enough):
        console.print(part)
    console.print(Text.assemble((path, "bold"), f"  {conditions_line(conditions)}"))
    for part in launch_parts(account, bars.glyphs_for(console)):
        console.print(part)
    console.print()


def draw_metrics(console: Console, metrics: Mapping[str, Metric]) -> None:
    """Print the metrics that were asked for beside the plan."""
    if metrics:
        console.print(Text("Metrics asked for", "bold"))
    for name, metric in metrics.items():
        value = metric.value
        shown = units.DASH if value is None else f"{value:,.6g}" if isinstance(value, int | float) else value
        console.print(indented(Text(f"{name} {shown} {metric.unit}".rstrip())))
    if metrics:
        console.print()
