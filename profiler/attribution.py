"""A report's path -> the attribution of one launch: reads, disassembles, finds regions, and calls pcsample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from profiler.accounting import account
from profiler.blame import Hot
from profiler.cfg import FlowGraph
from profiler.code import Code
from profiler.cubin import CodeReader, open_code
from profiler.defuse import DefUse
from profiler.errors import ReportError
from profiler.model import LaunchProfile, Report, Work
from profiler.ncu_parse import load
from profiler.pcsample import attribute
from profiler.regions import find_regions
from profiler.selection import longest_sampled, select
from profiler.vocabulary import metrics_for_attribution


@dataclass(frozen=True)
class Attributed:
    """The result and the source lines {file as the line table names it: lines} to show beside it."""

    hot: Hot
    sources: Mapping[str, Sequence[str]]


def attribute_report(
    path: str,
    *,
    launch: int | None = None,
    kernel: str | None = None,
    work: Work | None = None,
    source_folder: str | None = None,
    region_file: str | None = None,
) -> Attributed:
    """Attribute the samples of one launch of a report, by default the longest one with samples.

    ``kernel`` is a regular expression on the function name. ``source_folder`` supplies sources that the report does
    not embed, by file name. Raises ReportError, NoMatchError, UsageError (region file) and MissingToolError.
    """
    with ThreadPoolExecutor(2) as pool:
        # A child process reads the report, nvdisasm is another process.
        pending = pool.submit(load, path, metrics=metrics_for_attribution())
        code = pool.submit(open_code, path)
        report, reader = pending.result(), code.result()
    chosen = longest_sampled(select(report, kernel, launch))
    toml = region_text(region_file)
    return attribute_launch(report, chosen, work=work, source_folder=source_folder, toml=toml, reader=reader)


def region_text(file: str | None) -> str | None:
    """Return the text of a region file, None for None."""
    return None if file is None else Path(file).read_text(encoding="utf-8", errors="replace")


def attribute_launch(
    report: Report,
    launch: LaunchProfile,
    *,
    work: Work | None = None,
    source_folder: str | None = None,
    toml: str | None = None,
    reader: CodeReader | None = None,
) -> Attributed:
    """Attribute the samples of one launch of a loaded report (read with its instances).

    ``toml`` is the text of a region file; ``reader`` the report's code, when it was opened already.
    """
    books = account(launch, work)
    code = _code(report.path, launch, reader)
    sources = _sources(launch, code, source_folder)
    regions = find_regions(sources, toml, kernel=launch.kernel)
    hot = attribute(books, code, regions)
    return Attributed(hot, {name: text.splitlines() for name, text in sources.items()})


def live_registers(hot: Hot) -> dict[tuple[str, int], int]:
    """Return live general registers by (function, offset)."""
    found = {}
    for function in hot.code.functions.values():
        counts = DefUse(FlowGraph(function)).live_counts
        found.update({(function.name, i.offset): n for i, n in zip(function.instructions, counts, strict=True)})
    return found


def _code(path: str, launch: LaunchProfile, reader: CodeReader | None) -> Code:
    try:
        return (reader or CodeReader(path)).codes([launch])[launch.index]
    except ReportError as error:
        # Without code the books of the samples still close: all of them lie outside of what is known.
        return Code("", 0, {}, (str(error).removeprefix(f"{path}: "),))


def _sources(launch: LaunchProfile, code: Code, folder: str | None) -> dict[str, str]:
    """Return the sources that the line table names: embedded in the report, else from the folder by file name."""
    named = {f.file for function in code.functions.values() for i in function.instructions for f in i.frames}
    found = {name: text for name, text in launch.source_files.items() if name in named or not named}
    if folder is None:
        return found
    by_name: dict[str, list[Path]] = {}
    for file in sorted(Path(folder).rglob("*")):
        if file.is_file():
            by_name.setdefault(file.name, []).append(file)
    for name in named - set(found):
        candidates = by_name.get(re.split(r"[\\/]", name)[-1], [])
        if candidates:
            best = max(candidates, key=lambda p: _common_tail(p.as_posix(), name.replace("\\", "/")))
            found[name] = best.read_text(encoding="utf-8", errors="replace")
    return found


def _common_tail(a: str, b: str) -> int:
    parts = zip(reversed(a.split("/")), reversed(b.split("/")), strict=False)
    return next((n for n, (x, y) in enumerate(parts) if x != y), min(a.count("/"), b.count("/")) + 1)
