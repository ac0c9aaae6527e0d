"""A verification -> what ``cyinst verify`` shows: one row a variant, then every failure in a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dashboards import units
from dashboards.terminal.layout import heading
from profiler.specimen import Shape, Specimen, Variant
from profiler.verify import Check, ProgramCheck, Verification

# So many failing checks of a variant are shown; the JSON document has them all.
SHOWN = 4
HEADER = ("variant", "shapes", "worst error", "at", "bits", "path", "memory", "programs")


def draw(console: Console, result: Verification) -> None:
    """Print the table, the failures and the verdict."""
    sizes = " x ".join(result.checks[0].shape) if result.checks else ""
    console.print(Text.assemble((result.specimen, "bold"), f"  {result.gpu}  seed {result.seed}, shapes {sizes}"))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in HEADER:
        table.add_column(name, justify="right" if name in ("shapes", "worst error", "memory") else "left")
    for variant in result.variants:
        cells = _cells(result, variant)
        style = "red" if any(x.verdict != "ok" for x in _all_of(result, variant.name)) else ""
        table.add_row(Text(cells[0], style), *map(Text, cells[1:]))
    console.print(table)
    failures = list(_failures(result))
    if failures:
        console.print(heading("Failures"))
        for verdict, text in failures:
            console.print(Text.assemble((verdict, "red"), f" {text}"))
    console.print(Text(f"\n{verdict_line(result)}", "green" if result.ok else "red"))


def markdown(result: Verification) -> str:
    """Return the table and the failures as Markdown."""
    lines = [f"**{result.specimen}** on {result.gpu}: {verdict_line(result)}", "", f"| {' | '.join(HEADER)} |"]
    lines.append("|---" * len(HEADER) + "|")
    lines += [f"| {' | '.join(_cells(result, variant))} |" for variant in result.variants]
    failures = [f"- {verdict} {text}" for verdict, text in _failures(result)]
    return "\n".join([*lines, *(["", *failures] if failures else [])]) + "\n"


def verdict_line(result: Verification) -> str:
    """Return the outcome in words."""
    counts = result.verdicts
    total = sum(counts.values())
    if result.ok:
        return f"all {total} checks passed"
    parts = [f"{counts[v]} {v}" for v in ("INCORRECT", "INVALID", "not run") if counts[v]]
    return f"{counts['ok']} of {total} checks passed: {', '.join(parts) or 'there was nothing to check'}"


def _cells(result: Verification, variant: Variant) -> tuple[str, ...]:
    checks = result.of(variant.name)
    measured = [check for check in checks if check.relative_error is not None]
    worst = max(measured, key=lambda check: check.relative_error or 0.0, default=None)
    memory = max((check.extra_bytes or 0 for check in checks), default=0)
    return (
        variant.name,
        f"{sum(check.verdict == 'ok' for check in checks)}/{len(checks)}",
        units.DASH if worst is None else f"{worst.relative_error:.1e}",
        units.DASH if worst is None else compact(worst.shape),
        _bits(variant, checks),
        _path(checks),
        f"{memory:,} B" if memory else units.DASH,
        _programs([x for x in result.programs if x.variant == variant.name]),
    )


def _bits(variant: Variant, checks: Sequence[Check]) -> str:
    if any("bits differ" in problem for check in checks for problem in check.problems):
        return "differ"
    others = {check.same_bits_as[0] for check in checks if check.same_bits_as} - {variant.name}
    if others:
        return f"= {', '.join(sorted(others))}"
    # The one that the others of its group are compared with.
    return variant.bit_equal or units.DASH


def _path(checks: Sequence[Check]) -> str:
    promised = [check.path_ok for check in checks if check.path_ok is not None]
    return units.DASH if not promised else "ok" if all(promised) else "other"


def _programs(programs: Sequence[ProgramCheck]) -> str:
    if not programs:
        return units.DASH
    return ", ".join(f"{x.program} {(x.digest or '')[:8] if x.verdict == 'ok' else x.verdict}" for x in programs)


def _all_of(result: Verification, name: str) -> list[Check | ProgramCheck]:
    return [*result.of(name), *(x for x in result.programs if x.variant == name)]


def _failures(result: Verification) -> Iterator[tuple[str, str]]:
    """Yield (verdict, line); a problem that shapes share to the letter is told once."""
    for variant in result.variants:
        told: dict[tuple[str, str], list[str]] = {}
        for x in _all_of(result, variant.name):
            where = compact(x.shape) if isinstance(x, Check) else f"program {x.program}"
            for problem in x.problems:
                told.setdefault((x.verdict, problem), []).append(where)
        for (verdict, problem), places in list(told.items())[:SHOWN]:
            also = f" (and at {len(places) - 1} more)" if len(places) > 1 else ""
            yield verdict, f"{variant.name} at {places[0]}: {problem}{also}"
        if len(told) > SHOWN:
            yield "...", f"{len(told) - SHOWN} more of {variant.name}; --format json has them all"
    left = result.verdicts["not run"]
    if left:
        yield "not run", f"{left} checks: the CUDA context was lost; run the variants one by one"


def compact(shape: Mapping[str, int]) -> str:
    """Return a shape as ``--shape`` takes it, 512x3584x4096."""
    return "x".join(map(str, shape.values()))


def draw_listing(console: Console, specimen: Specimen, variants: Sequence[Variant], shapes: Sequence[Shape]) -> None:
    """Print what a specimen holds: variants with ideas, groups, shapes."""
    console.print(Text.assemble((specimen.name, "bold"), f"  {specimen.about}"))
    console.print(Text(f"measured at {specimen.shape}; tolerance {specimen.tolerance:g}"))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("variant", "bits", "idea"):
        table.add_column(name, overflow="fold")
    for variant in variants:
        table.add_row(Text(variant.name), Text(variant.bit_equal or units.DASH), Text(variant.idea))
    console.print(table)
    sizes = " x ".join(specimen.shape)
    console.print(Text(f"{len(shapes)} shapes ({sizes}): {', '.join(map(compact, shapes))}"))
    if specimen.programs:
        console.print(Text(f"programs: {', '.join(specimen.programs)}"))


def listing_markdown(specimen: Specimen, variants: Sequence[Variant], shapes: Sequence[Shape]) -> str:
    """Return the listing as Markdown."""
    lines = [f"**{specimen.name}**: {specimen.about}", "", "| variant | bits | idea |", "|---|---|---|"]
    lines += [f"| {v.name} | {v.bit_equal or units.DASH} | {v.idea} |" for v in variants]
    lines += ["", f"{len(shapes)} shapes ({' x '.join(specimen.shape)}): {', '.join(map(compact, shapes))}"]
    return "\n".join(lines) + "\n"
