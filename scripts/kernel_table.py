"""Write the tables of kernels/README.md from kernels/captures.

    python scripts/kernel_table.py SPECIMEN TOKENS      every rung of a ladder
    python scripts/kernel_table.py campaign             three steps beside what the original campaign saw
    python scripts/kernel_table.py ggml                 the last rungs beside the int8 ceiling and ggml's kernels

Counters come from the capture ``SPECIMEN.TOKENS.sm90.ncu-repz``, whose launches are known by their NVTX range; wall
times from ``timings.json``, which ``benchmarks/gpu/kernel_ladder.py`` wrote on the same card.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from profiler.accounting import account
from profiler.books import Account
from profiler.loading import load_specimen
from profiler.ncu_parse import load
from profiler.specimen import Specimen
from profiler.vocabulary import WarpState, metrics_for_accounting

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "kernels" / "captures"
HEAD = (
    "rung", "time, us", "change", "TOPS", "cy/inst", "long_scoreboard", "M inst/GMAC", "registers", "blocks/SM",
    "SM %", "L1/TEX %",
)  # fmt: skip
# A rung's idea is a change of the rung before it, unless it branches off an earlier one.
BRANCHES = {"4_planes_kd4": "2_wide_kd4", "5_planes_kd8": "3_wide_kd8", "6_tensor_mins": "3_wide_kd8"}
# What the campaign measured on its own GPU: kernel time, long_scoreboard share of cy/inst, warp instructions.
CAMPAIGN = (
    ("q6k", "3_three_blocks", "4_wide_loads", "-61.5 %", "85.5 -> 33.6 %", "not stated"),
    ("q4k", "3_wide_kd8", "5_planes_kd8", "-4.5 %", "not stated", "-0.3 %"),
    ("q4k", "2_wide_kd4", "4_planes_kd4", "+2.1 %", "not stated", "-0.3 %"),
)
# ggml's CUDA back end of August 2026 on an H200, us of one mul_mat from float32 activations, by tokens.
GGML = {"q6k": {"2630": 521, "512": 113}, "q4k": {"2630": 443, "512": 93}}
LAST = {"q6k": "8_folded_scales", "q4k": "6_tensor_mins"}


@cache
def timings() -> dict[str, Any]:
    """Return what the benchmark wrote."""
    found: dict[str, Any] = json.loads((CAPTURES / "timings.json").read_text())
    return found


@cache
def specimen(name: str) -> Specimen:
    """Return a bundled specimen."""
    return load_specimen(ROOT / "kernels" / name)


@cache
def books_of(name: str, tokens: int) -> dict[str, Account]:
    """Return the account of each rung's launch; a rung that the capture lacks is missing here too."""
    spec = specimen(name)
    report = load(CAPTURES / f"{name}.{tokens}.sm90.ncu-repz", metrics=metrics_for_accounting(), instances=False)
    names = {f"{name}.{v.name}": v.name for v in spec.variants}
    work = spec.work_of(spec.shape.but(tokens=tokens))
    return {
        names[nvtx.name]: account(launch, work=work)
        for launch in report.launches
        for nvtx in launch.nvtx
        if nvtx.name in names
    }


def microseconds(name: str, rung: str, tokens: int | str) -> float:
    """Return the median wall time of a rung."""
    us: float = timings()["us"][str(tokens)][f"{name}.{rung}"]["us"]
    return us


def cell(value: float | None, form: str, unit: str = "") -> str:
    """Return a number as it is shown; what was not collected is said, never zero."""
    return "not collected" if value is None else f"{value:{form}}{unit}"


def waiting_share(books: Account) -> float | None:
    """Return the percentage of cy/inst that is long_scoreboard."""
    waiting, latency = books.states.get(WarpState.LONG_SCOREBOARD), books.warp_cycles_per_issued_instruction
    return None if waiting is None or not latency else 100 * waiting / latency


def change(name: str, before: str, after: str, tokens: int) -> float:
    """Return the change of wall time between two rungs, in per cent."""
    return 100 * (microseconds(name, after, tokens) / microseconds(name, before, tokens) - 1)


def row(name: str, rung: str, before: str | None, tokens: int) -> list[str]:
    """Return the cells of one rung."""
    books, us = books_of(name, tokens)[rung], microseconds(name, rung, tokens)
    work = books.per_work
    against = "" if before is None else f" against `{before}`" if rung in BRANCHES else ""
    return [
        f"`{rung}`",
        f"{us:.1f}",
        "" if before is None else f"{change(name, before, rung, tokens):+.1f} %{against}",
        cell(None if work is None else 2e3 * work.work.gmac / us, ".0f"),
        cell(books.warp_cycles_per_issued_instruction, ".2f"),
        f"{cell(books.states.get(WarpState.LONG_SCOREBOARD), '.2f')} ({cell(waiting_share(books), '.1f', ' %')})",
        cell(None if work is None or work.instructions is None else work.instructions / 1e6, ".2f"),
        cell(books.occupancy.registers_per_thread, "d"),
        str(min(books.occupancy.limits.values())) if books.occupancy.limits else "not collected",
        cell(books.throughputs_pct["sm"], ".0f"),
        cell(books.throughputs_pct["l1tex"], ".0f"),
    ]


def markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ladder(name: str, tokens: int) -> str:
    """Return the table of a ladder."""
    rungs = [v.name for v in specimen(name).variants]
    earlier = [None, *rungs[:-1]]
    return markdown(HEAD, [row(name, r, BRANCHES.get(r, e), tokens) for r, e in zip(rungs, earlier, strict=True)])


def campaign() -> str:
    """Return the table of the steps that the campaign took too."""
    rows = []
    for name, before, after, time, share, instructions in CAMPAIGN:
        one, two = books_of(name, 2630)[before], books_of(name, 2630)[after]
        shares = f"{cell(waiting_share(one), '.1f')} -> {cell(waiting_share(two), '.1f', ' %')}"
        executed = None
        if one.executed_instructions and two.executed_instructions:
            executed = 100 * (two.executed_instructions / one.executed_instructions - 1)
        here = f"{change(name, before, after, 2630):+.1f} %"
        rows.append(
            [f"{name} `{before}` -> `{after}`", here, time, shares, share, cell(executed, "+.1f", " %"), instructions]
        )
    head = ("step", "time", "campaign", "long_scoreboard share", "campaign", "warp instructions", "campaign")
    return markdown(head, rows)


def beside_ggml() -> str:
    """Return the table of the last rungs, quantising the activations included, as ggml's figure includes it."""
    ceiling = timings()["ceiling_tops"]["m16n8k32"]
    rows = []
    for name, rung in LAST.items():
        for tokens in ("2630", "512", "4096"):
            work = specimen(name).work_of(specimen(name).shape.but(tokens=int(tokens)))
            assert work is not None
            alone = microseconds(name, rung, tokens)
            whole = timings()["us"][tokens][f"{name}.{rung} with quantising"]["us"]
            tops, theirs = 2e3 * work.gmac / alone, GGML[name].get(tokens)
            rows.append([
                f"{name} `{rung}`", tokens, f"{tops:.0f}", f"{100 * tops / ceiling:.1f} %", f"{whole:.1f}",
                "not measured" if theirs is None else str(theirs),
                "" if theirs is None else f"{100 * (whole / theirs - 1):+.1f} %",
            ])  # fmt: skip
    head = ("rung", "tokens", "TOPS", "of the ceiling", "with quantising, us", "ggml, us", "against ggml")
    return markdown(head, rows)


if __name__ == "__main__":
    what = sys.argv[1]
    print(campaign() if what == "campaign" else beside_ggml() if what == "ggml" else ladder(what, int(sys.argv[2])))
