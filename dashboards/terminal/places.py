"""Places in a kernel -> how they are named in a table: file and line, or function and offset; the source text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiler.blame import Place

Sources = Mapping[str, Sequence[str]]


def name_of(place: Place) -> str:
    """Return ``file:line`` or, without a line table, ``function+offset``."""
    return place.source or f"{place.function}+{place.instruction.offset:#x}"


def source_line(place: Place, sources: Sources) -> str:
    """Return the text of a place's source line, cut to 100 characters; empty where there is none."""
    if place.file is None or place.line is None:
        return ""
    lines = sources.get(place.file)
    return lines[place.line - 1].strip()[:100] if lines is not None and 0 < place.line <= len(lines) else ""
