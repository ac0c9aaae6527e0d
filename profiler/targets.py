"""What a person wants profiled -> the programs that ncu starts: a variant of a specimen, or any command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiler.errors import UsageError
from profiler.loading import resolve
from profiler.model import Work
from profiler.ranges import DOMAIN
from profiler.sidecar import Subject

# Where ``cyinst launch`` says, under cyinst profile, what it launched.
FACTS = "CYINST_LAUNCH_FACTS"


@dataclass(frozen=True)
class Target:
    """A program, and which of its launches is meant; ``label`` begins the report's file name."""

    label: str
    program: tuple[str, ...]
    kernel: str | None = None
    nvtx: str | None = None
    subject: Subject | None = None
    work: Work | None = None
    environment: dict[str, str] = field(default_factory=dict)


def specimen_targets(
    text: str, shape: str | None = None, kernel: str | None = None, seed: int = 0, *, split_waits: str | None = None
) -> list[Target]:
    """Return one target for each variant that ``SPEC[:VARIANT,...]`` names.

    The launch is the one that ``cyinst launch`` puts into the variant's NVTX range, after its warm-up. Of its kernels
    it is the one that matches ``kernel``, else the one that the variant promises (``Variant.path``), else the first.
    ``split_waits`` launches copies of the kernels (profiler/split_waits.py).
    """
    specimen, names, path = resolve(text)
    wanted = specimen.shape_from(shape)
    git, dirty = _git(path.resolve().parent)
    place = path.parent if path.name == "spec.py" else path
    targets = []
    for variant in specimen.pick(names):
        promised = variant.path(wanted) if variant.path is not None and kernel is None else None
        program = [sys.executable, "-m", "profiler.cli", "launch", f"{place}:{variant.name}"]
        program += ["--shape", ",".join(f"{name}={size}" for name, size in wanted.items()), "--seed", str(seed)]
        program += ["--split-waits", split_waits] if split_waits else []
        targets.append(
            Target(
                label=f"{specimen.name}.{variant.name}" + (f".{split_waits}" if split_waits else ""),
                program=tuple(program),
                kernel=f"^{re.escape(promised)}$" if isinstance(promised, str) else kernel,
                nvtx=f"{DOMAIN}@{specimen.name}.{variant.name}/",
                subject=Subject(
                    specimen.name, variant.name, variant.idea, dict(wanted), str(place), git=git, dirty=dirty
                ),
                work=specimen.work_of(wanted),
                environment={"PYTHONPATH": package_path()},
            )
        )
    return targets


def program_target(words: Sequence[str], kernel: str | None = None, nvtx: str | None = None) -> Target:
    """Return the target for a command and its arguments. Raises UsageError when there is none."""
    if not words:
        raise UsageError("after -- comes the program to profile and its arguments")
    stem = Path(words[0]).stem
    if stem.startswith("python"):
        # The script says more than the interpreter.
        stem = next((Path(word).stem for word in words[1:] if word.endswith(".py")), stem)
    return Target(re.sub(r"[^\w.-]+", "_", stem) or "program", tuple(words), kernel, nvtx)


def package_path() -> str:
    """So that the child finds this very package, from whichever folder it is started."""
    root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([root, known] if known else [root])


def _git(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit that a folder is at and whether it differs from it, None and None outside of git."""
    answers = []
    for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", ".")):
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None, None
        if done.returncode != 0:
            return None, None
        answers.append(done.stdout.strip())
    return answers[0], bool(answers[1])
