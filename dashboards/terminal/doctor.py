"""Diagnosis -> what ``cyinst doctor`` shows: each check in words, with its remedy on the line below."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from profiler import doctor

TITLES: dict[doctor.Group, str] = {"reading": "Reading reports", "capturing": "Capturing reports"}
STYLES: dict[doctor.Status, str] = {"ok": "green", "missing": "red", "problem": "red", "unknown": "yellow"}


def draw(diagnosis: doctor.Diagnosis) -> RenderableType:
    """Return the checks by group; the status is a word as well as a colour, and long text wraps under itself."""
    parts: list[RenderableType] = []
    for group, title in TITLES.items():
        parts.append(Text.assemble((title, "bold"), f": {verdict(diagnosis, group)}"))
        for check in diagnosis.checks:
            if check.group == group:
                # What is optional is no obstacle, and not drawn as one.
                style = "yellow" if check.status != "ok" and not check.required else STYLES[check.status]
                parts.append(_row((Text(check.status, style), 8), (Text(check.name), 16), Text(check.detail)))
                if check.remedy:
                    parts.append(_row((Text(""), 8), (Text("->", style), 2), Text(check.remedy)))
        parts.append(Text(""))
    return Group(*parts[:-1])


def _row(first: tuple[Text, int], second: tuple[Text, int], rest: Text) -> Table:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=1)
    row.add_column(width=first[1], no_wrap=True)
    row.add_column(width=second[1], no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row("", first[0], second[0], rest)
    return row


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
