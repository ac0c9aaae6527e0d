"""Numbers as people read them: times, counts, shares. Unknown is a dash, never zero."""

from __future__ import annotations

DASH = "-"


def time(ns: float | None, signed: bool = False) -> str:
    """Format nanoseconds as ns, us, ms or s: four significant digits at most."""
    if ns is None:
        return DASH
    size = abs(ns)
    for limit, scale, unit in (
        (1e3, 1.0, "ns"),
        (1e6, 1e3, "us"),
        (1e9, 1e6, "ms"),
        (float("inf"), 1e9, "s"),
    ):
        if size < limit or unit == "s":
            return f"{_digits(ns / scale, signed)} {unit}"
    raise AssertionError


def microseconds(ns: float | None, signed: bool = False) -> str:
    """Format nanoseconds in us with one decimal: aligned columns of one unit."""
    if ns is None:
        return DASH
    return f"{ns / 1e3:{'+' if signed else ''},.1f} us"


def count(n: float | None) -> str:
    """Format a count with k, M, G, T; an average count below 100 keeps its decimals, so that little is not none."""
    if n is None:
        return DASH
    if abs(n) < 100 and n != int(n):
        return f"{n:.2f}"
    for limit, scale, unit in ((1e4, 1.0, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M"), (1e12, 1e9, " G")):
        if abs(n) < limit:
            return f"{n:,.0f}" if not unit else f"{_digits(n / scale)}{unit}"
    return f"{_digits(n / 1e12)} T"


def percent(x: float | None, digits: int = 1) -> str:
    """Format a percentage."""
    return DASH if x is None else f"{x:.{digits}f} %"


def number(x: float | None, digits: int = 2) -> str:
    """Format a number with fixed decimals."""
    return DASH if x is None else f"{x:.{digits}f}"


def dims(shape: tuple[int, int, int] | None) -> str:
    """Format a grid or block as 42 x 28, trailing ones left out."""
    if shape is None:
        return DASH
    sizes = list(shape)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return "x".join(map(str, sizes))


def _digits(x: float, signed: bool = False) -> str:
    sign = "+" if signed else ""
    size = abs(x)
    if size >= 1000:
        return f"{x:{sign},.0f}"
    return f"{x:{sign}.{3 if size < 10 else 2 if size < 100 else 1}f}"
