"""A capture's sidecar -> the kernel's own lines: what ran, in which conditions, and what the samples are good for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from dashboards.terminal.layout import indented
from profiler.nvml import Reading
from profiler.sampling import ENOUGH, told
from profiler.sidecar import Sidecar


def capture_lines(s: Sidecar, enough: int = ENOUGH) -> Iterator[RenderableType]:
    """Yield the lines; ``enough`` is the number of samples that was aimed at."""
    work = "" if s.work is None else f"  {s.work.gmac:.4g} GMAC"
    yield Text.assemble((_name(s), "bold cyan"), work)
    if s.subject is not None:
        kernels = s.subject.kernels or ()
        others = f", one of the {len(kernels)} of a launch: {', '.join(kernels)}" if len(kernels) > 1 else ""
        yield indented(Text(f"kernel {s.kernel}{others}"))
        if s.subject.idea:
            yield indented(Text(s.subject.idea))
    passes = "passes not known" if s.passes is None else f"{s.passes} pass{'es' * (s.passes != 1)}"
    source = ""
    if s.subject is not None and s.subject.git:
        source = f", source at {s.subject.git[:10]}{' with changes' if s.subject.dirty else ''}"
    yield indented(Text(f"plan {s.plan}: {passes} in {s.seconds:.1f} s{source}"))
    yield indented(Text(f"the card before and after: {sensors(s.before, s.after)}"))
    if (line := told(s.tries, s.kept, enough)) is not None:
        yield indented(Text(line, "yellow"))
    if s.not_collected:
        shown = ", ".join(s.not_collected[:4])
        more = f" and {len(s.not_collected) - 4} more" if len(s.not_collected) > 4 else ""
        yield indented(Text(f"asked for, but not collected by this ncu on this GPU: {shown}{more}", "yellow"))


def _name(s: Sidecar) -> str:
    return s.kernel if s.subject is None else f"{s.subject}  {' '.join(f'{n}={x}' for n, x in s.subject.shape.items())}"


def sensors(before: Reading | None, after: Reading | None) -> str:
    """Say what NVML told before and after; what it did not tell is unknown."""
    if before is None and after is None:
        return "unknown (NVML was not to be read, or which of the cards it was)"
    parts = []
    for label, name, unit in (
        ("SM clock", "sm_mhz", "MHz"), ("memory clock", "memory_mhz", "MHz"), ("", "temperature_c", "C"),
        ("", "power_w", "W"),
    ):  # fmt: skip
        values = [None if r is None else getattr(r, name) for r in (before, after)]
        if values == [None, None]:
            parts.append(f"{label or name.split('_')[0]} unknown")
            continue
        first, second = ("?" if x is None else f"{x:.0f}" for x in values)
        text = first if first == second else f"{first} -> {second}"
        parts.append(f"{label} {text} {unit}".strip())
    reasons = [r.reasons for r in (before, after) if r is not None and r.reasons is not None]
    held = sorted({word for words in reasons for word in words if word != "idle"})
    parts.append(f"held down by {', '.join(held)}" if held else "not held down" if reasons else "throttling unknown")
    return ", ".join(parts)
