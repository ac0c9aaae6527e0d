"""Named parts of a kernel: source comments, a TOML file, or inlined functions -> the region of an instruction (pure).

Comment pairs survive edits: ``// @region stage_b`` ... ``// @end`` (``#`` for Python), nested ones are named by their
path (``stage/expand``). A TOML file names line ranges or SASS patterns instead::

    [[region]]
    name = "scales"
    lines = ["q6k.cu:65-73"]        # file name or its end, first-last
    sass = "LDG\\.E\\.U16"           # regular expression on the instruction's text; either or both

An instruction belongs to the first of its source positions, innermost first, that lies in a region, so that a helper
inlined into a region belongs to it.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from profiler.blame import UNMARKED
from profiler.code import Frame, Instruction
from profiler.errors import UsageError

_OPEN = re.compile(r"(?://|#|/\*)\s*@region\s+(?P<name>[^\s*]+)")
_CLOSE = re.compile(r"(?://|#|/\*)\s*@end\b")
_DEFINITION = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\s*\((?:[^;{}()]|\([^;{}()]*\))*\)\s*(?:const\b|noexcept\b|\s)*\{")
_BRACE = re.compile(r"[{}]")
_NOT_FUNCTIONS = frozenset(
    "if for while switch return sizeof catch __launch_bounds__ __align__ alignas defined".split()
)


@dataclass(frozen=True, slots=True)
class Span:
    """Lines first..last (1-based, both included) of a file that belong to a region."""

    file: str
    first: int
    last: int
    region: str


@dataclass(frozen=True)
class Regions:
    """Where regions are. ``source``: ``source comments``, ``region file`` or ``inlined functions``."""

    source: str
    spans: tuple[Span, ...] = ()
    patterns: tuple[tuple[str, re.Pattern[str]], ...] = ()
    functions: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    kernel: str = ""
    problems: tuple[str, ...] = ()

    def region_of(self, instruction: Instruction) -> str:
        """Return the region's name, ``(unmarked)`` when the instruction lies in none."""
        for name, pattern in self.patterns:
            if pattern.search(instruction.text):
                return name
        for frame in instruction.frames:
            if (inner := self._innermost(frame)) is not None:
                return inner
        if self.source == "inlined functions":
            # The outermost function that is not the kernel itself: what the kernel called.
            for frame in reversed(instruction.frames):
                called = frame.function or self._function_at(frame)
                if called is not None and called != self.kernel:
                    return called
        return UNMARKED

    def _innermost(self, frame: Frame) -> str | None:
        inside = [s for s in self.spans if s.first <= frame.line <= s.last and _same_file(s.file, frame.file)]
        return min(inside, key=lambda s: s.last - s.first).region if inside else None

    def _function_at(self, frame: Frame) -> str | None:
        spans = self.functions.get(frame.file, ())
        at = bisect_right([s.first for s in spans], frame.line)
        return spans[at - 1].region if at and spans[at - 1].last >= frame.line else None


def find_regions(sources: Mapping[str, str], toml: str | None = None, kernel: str = "") -> Regions:
    """Return the regions of a kernel from its source files {path: text} and the text of a region file.

    A region file wins over comments, comments over inlined functions (those that are not ``kernel``, by its source
    name). Raises UsageError for a malformed region file.
    """
    if toml is not None:
        return _from_toml(toml)
    spans: list[Span] = []
    problems: list[str] = []
    for path, text in sources.items():
        found, wrong = _from_comments(path, text)
        spans += found
        problems += wrong
    if spans:
        return Regions("source comments", tuple(spans), problems=tuple(problems))
    functions = {path: _definitions(path, text) for path, text in sources.items()}
    return Regions("inlined functions", functions=functions, kernel=kernel, problems=tuple(problems))


def _from_comments(path: str, text: str) -> tuple[list[Span], list[str]]:
    spans: list[Span] = []
    problems: list[str] = []
    open_regions: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _OPEN.search(line):
            open_regions.append((match["name"], number))
        elif _CLOSE.search(line):
            if not open_regions:
                problems.append(f"{path}:{number}: @end closes no @region")
                continue
            name = "/".join(n for n, _ in open_regions)
            spans.append(Span(path, open_regions.pop()[1], number, name))
    problems += [f"{path}:{number}: @region {name} is not closed by @end" for name, number in open_regions]
    return spans, problems


def _from_toml(text: str) -> Regions:
    try:
        entries: Any = tomllib.loads(text).get("region", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the region file is not TOML: {error}") from error
    spans: list[Span] = []
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str) or not name:
            raise UsageError('the region file has a [[region]] without name = "..."')
        lines = entry.get("lines", [])
        if not isinstance(lines, list):
            raise UsageError(f'region {name}: lines takes a list, ["file.cu:first-last"], not {lines!r}')
        for place in lines:
            match = re.fullmatch(r"(?P<file>.+):(?P<first>\d+)(?:-(?P<last>\d+))?", str(place))
            if match is None:
                raise UsageError(f'region {name}: lines takes "file.cu:first-last", not {place!r}')
            spans.append(Span(match["file"], int(match["first"]), int(match["last"] or match["first"]), name))
        if "sass" in entry:
            try:
                patterns.append((name, re.compile(str(entry["sass"]))))
            except re.error as error:
                raise UsageError(f"region {name}: sass is not a regular expression ({error})") from error
    if not spans and not patterns:
        raise UsageError('the region file names no [[region]] with lines = ["file.cu:1-9"] or sass = "..."')
    return Regions("region file", tuple(spans), tuple(patterns))


def _definitions(path: str, text: str) -> tuple[Span, ...]:
    """Return the line spans of a file's functions: C++ by matching braces, Python by indentation."""
    if path.endswith(".py"):
        return _python_definitions(path, text)
    clean = _without_comments(text)
    starts = [0, *(newline.end() for newline in re.finditer("\n", clean))]
    found: list[Span] = []
    position = 0
    while (definition := _DEFINITION.search(clean, position)) is not None:
        position = definition.end()
        if definition["name"] in _NOT_FUNCTIONS:
            continue
        depth, end = 1, definition.end()
        while depth and (brace := _BRACE.search(clean, end)) is not None:
            depth += 1 if brace[0] == "{" else -1
            end = brace.end()
        position = end
        first, last = bisect_right(starts, definition.start("name")), bisect_right(starts, end - 1)
        found.append(Span(path, first, last, definition["name"]))
    return tuple(found)


def _without_comments(text: str) -> str:
    """Blank comments and string contents, keeping every newline where it is."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", blank, text, flags=re.DOTALL)


def _python_definitions(path: str, text: str) -> tuple[Span, ...]:
    found: list[Span] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.match(r"(\s*)def\s+(\w+)", line)
        if match is None:
            continue
        last = number
        for later in range(number, len(lines)):
            dedented = lines[later].strip() and not lines[later].startswith(match[1] + " ")
            if dedented and not lines[later].lstrip().startswith((")", "#")):
                break
            last = later + 1
        found.append(Span(path, number, last, match[2]))
    return tuple(found)


def _same_file(named: str, full: str) -> bool:
    """True when a path as a person writes it (``q6k.cu``, ``src/q6k.cu``) names the full path of a line table."""
    if named == full:
        return True
    wanted, have = _parts(named), _parts(full)
    return len(wanted) <= len(have) and have[len(have) - len(wanted) :] == wanted


def _parts(path: str) -> Sequence[str]:
    kind: type[PurePath] = PureWindowsPath if "\\" in path else PurePosixPath
    return kind(path).parts
