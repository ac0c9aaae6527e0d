"""Rewrite what the documents quote: outputs in README.md and docs/, and the CLI reference docs/cli.md.

A quoted output stands between ``<!-- run: COMMAND -->`` and ``<!-- end -->``, one that is Markdown itself after
``<!-- table: COMMAND -->``; the command is run from the repository's root on the bundled captures, so the documents
say what the product says. ``--check`` writes nothing and exits 1 when a document is out of date.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "docs/python.md",
    "docs/reading-the-books.md",
    "docs/hot.md",
    "docs/truth.md",
    "kernels/README.md",
)
BLOCK = re.compile(r"(<!-- (?P<kind>run|table): (?P<command>.+?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def output_of(command: str) -> str:
    """Return what a ``cyinst`` or ``python -c`` command prints at 80 columns, trailing spaces removed."""
    words = shlex.split(command)
    words[:1] = [sys.executable, "-m", "profiler.cli"] if words[0] == "cyinst" else [sys.executable]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    done = subprocess.run(words, capture_output=True, cwd=ROOT, env=environment, check=False)
    text = (done.stdout + done.stderr).decode()
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def with_outputs(text: str) -> str:
    """Return a document with every quoted output run anew."""

    def renew(found: re.Match[str]) -> str:
        command = found["command"]
        if found["kind"] == "table":
            return f"{found[1]}{output_of(command)}\n{found['end']}"
        shown = "" if command == "cyinst demo" or command.startswith("python") else f"$ {command}\n"
        return f"{found[1]}```text\n{shown}{output_of(command)}\n```\n{found['end']}"

    return BLOCK.sub(renew, text)


def cli_reference() -> str:
    """Return docs/cli.md: the help of every command."""
    from profiler.cli import COMMANDS

    out = ["# Command reference", "", "Written by `make docs` from the commands' own help.", ""]
    for name in ("", *COMMANDS):
        command = f"cyinst {name} --help".replace("  ", " ")
        out += [f"## `{command.removesuffix(' --help')}`", ""]
        out += ["```text", output_of(command), "```", ""]
    return "\n".join(out)


def main(check: bool) -> int:
    """Write, or compare, every document; return the exit code."""
    wanted = {ROOT / name: with_outputs((ROOT / name).read_text(encoding="utf-8")) for name in DOCUMENTS}
    wanted[ROOT / "docs" / "cli.md"] = cli_reference()
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is {'out of date: run make docs' if check else 'rewritten'}")
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
