"""Diagnosis -> what ``cyinst doctor`` shows: each check in words, with its remedy on the line below."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from profiler import doctor

TITLES: dict[doctor.Group, str] = {"reading": "Reading reports", "capturing": "Capturing reports"}
STYLES: dict[doctor.Status, str] = {"ok": "green", "missing": "red", "problem": "red", "unknown": "yellow"}


def draw(diagnosis: doctor.Diagnosis) -> RenderableType:
    """Return the checks by group; status is a word as well as a colour, and wraps to the width of the console."""
    parts: list[RenderableType] = []
    for group, title in TITLES.items():
        parts.append(Text.assemble((title, "bold"), f": {verdict(diagnosis, group)}"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in diagnosis.checks:
            if check.group == group:
                # What is optional is no obstacle: it is not drawn as one.
                style = STYLES[check.status] if check.required or check.status == "ok" else "yellow"
                table.add_row(Text(f"  {check.status}", style), check.name, Text(check.detail))
                if check.remedy:
                    table.add_row("", "", Text(f"-> {check.remedy}", "bold" if check.obstacle else ""))
        parts += [table, Text("")]
    return Group(*parts[:-1])


def markdown(diagnosis: doctor.Diagnosis) -> str:
    """Return the checks as Markdown, one table a group, for an issue or a log."""
    lines = []
    for group, title in TITLES.items():
        lines += [f"## {title}: {verdict(diagnosis, group)}", "", "| check | status | found | remedy |"]
        lines.append("|---|---|---|---|")
        for check in diagnosis.checks:
            if check.group == group:
                cells = (check.name, check.status, check.detail, check.remedy or "")
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def verdict(diagnosis: doctor.Diagnosis, group: doctor.Group) -> str:
    """Return one group's state in words: ready, or how many obstacles, and what is unknown."""
    obstacles = len(diagnosis.obstacles(group))
    unknown = sum(c.group == group and c.status == "unknown" for c in diagnosis.checks)
    if obstacles:
        return f"{obstacles} obstacle{'s' if obstacles > 1 else ''}"
    return f"no obstacle found, {unknown} unknown" if unknown else "ready"
