"""``cyinst demo``: the main job on the bundled captures, rungs 3 and 4 of the ladder in kernels/q6k."""

from __future__ import annotations

from pathlib import Path

import click

from profiler.commands import common
from profiler.model import Work

FOLDER = Path(__file__).resolve().parent.parent / "demo"
BEFORE, AFTER = FOLDER / "q6k_byte_loads.sm90.ncu-rep", FOLDER / "q6k_wide_loads.sm90.ncu-rep"
# Tokens, rows and inner size of the captured launches: 33.78 GMAC.
GEMM = (2630, 3584, 3584)


@click.command(name="demo")
def command() -> None:
    """Compare two bundled captures of the q6_K ladder on an H200: byte loads against 16-byte loads of weights."""
    from profiler.commands.compare import run

    sizes = ",".join(map(str, GEMM))
    click.echo(f"$ cyinst compare {BEFORE.name} {AFTER.name} --gemm {sizes}")
    run(str(BEFORE), str(AFTER), [Work.gemm(*GEMM)])
    click.echo(f"\nThe captures are in {common.shown_path(FOLDER)}; try cyinst report on one of them.")
