"""One call of ``capture()`` or ``profile()``, found again when the same script runs under ncu.

The parent writes an order, a file that the environment names: which call is meant, and what came of the calls before
it. The run under ncu counts its calls, puts the one that is meant into an NVTX range, and ends with it. Light and
without results: users' programs import it.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

VARIABLE = "CYINST_CAPTURE"
# What the processes find that a run under ncu starts in its turn: they profile nothing.
OFF = "off"
# What ncu (the first two) and nsys set for a program that they start.
_PROFILERS = ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "NV_NSIGHT_INJECTION_PORT_BASE", "NSYS_PROFILING_SESSION_ID")
# The number of processes that a job consists of, as torchrun, Open MPI and MPICH tell it.
_RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# cuCtxSynchronize of a process that did not use CUDA, or does no more: not initialised, deinitialised, no context.
_NO_CUDA = (3, 4, 201)

_told = os.environ.get(VARIABLE)
if _told:
    os.environ[VARIABLE] = OFF
_pid = os.getpid()
_counts: Counter[str] = Counter()
_lock = threading.Lock()


class Part(Enum):
    """What this process has to do at a call."""

    LEADER = "runs the script again under ncu"
    FOLLOWER = "is that run"
    ATTACHED = "runs under a profiler that somebody else started"
    BYSTANDER = "belongs to a run under ncu, and only runs on"
    OTHER = "is a child process of a script, which leads nothing"


@dataclass(frozen=True, slots=True)
class Order:
    """Which call a run under ncu is for: ``name`` and its ``occurrence``, counted from 1.

    ``outcomes`` are those of earlier calls, by key: {"path": report} or {"kind": error class, "text": message}.
    """

    name: str
    occurrence: int
    outcomes: Mapping[str, Mapping[str, str]]

    @property
    def key(self) -> str:
        """How the call is called in ``outcomes``."""
        return key(self.name, self.occurrence)

    def write(self, folder: Path) -> Path:
        """Write the order into a folder of its own, and return the file."""
        file = folder / "order.json"
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return file


def key(name: str, occurrence: int) -> str:
    """Return ``name#occurrence``."""
    return f"{name}#{occurrence}"


def mark(order: Path) -> Path:
    """Return the file that stands beside an order once the run has come to its call."""
    return order.with_name("reached")


def part() -> Part:
    """Return what this process has to do at a call."""
    multiprocessing = sys.modules.get("multiprocessing")
    other = os.getpid() != _pid or (multiprocessing is not None and multiprocessing.parent_process() is not None)
    if _told:
        return Part.BYSTANDER if other or _told == OFF else Part.FOLLOWER
    if any(name in os.environ for name in _PROFILERS):
        return Part.ATTACHED
    return Part.OTHER if other else Part.LEADER


def order() -> Order | None:
    """Return the order that this process was started with, None where there is none."""
    if not _told or _told == OFF:
        return None
    return Order(**json.loads(Path(_told).read_text(encoding="utf-8")))


def reached() -> None:
    """Leave the mark that the run came to its call."""
    if _told:
        mark(Path(_told)).touch()


def count(name: str) -> int:
    """Count a call, and return its number among those of its name."""
    with _lock:
        _counts[name] += 1
        return _counts[name]


def ranks() -> int:
    """Return of how many processes the job of this one consists, 1 when it is alone."""
    found = (os.environ.get(name, "") for name in _RANKS)
    return max((int(n) for n in found if n.isdecimal()), default=1)


def script() -> list[str] | None:
    """Return the command that runs this very script again, None in a session that has none."""
    main = sys.modules["__main__"]
    if hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__"):
        return None
    words = [sys.executable, *sys.orig_argv[1:]]
    file = getattr(main, "__file__", None)
    if file is None:
        return words if sys.argv[:1] == ["-c"] else None
    if not os.path.isfile(file):
        return None
    for place, word in enumerate(words[1:], 1):
        # By its full name, so that a script may have changed its folder meanwhile.
        if file == word or file.endswith(os.sep + word):
            words[place] = file
            break
    return words


def synchronise() -> int:
    """Wait for all work of this thread's CUDA context, whichever library gave it. Returns the driver's error, or 0."""
    try:
        code = int(ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1").cuCtxSynchronize())
    except OSError:
        return 0
    return 0 if code in _NO_CUDA else code


def end(code: int = 0) -> NoReturn:
    """End this process here, when its launches have: without what the script would still do, nor its exit handlers."""
    if failed := synchronise():
        sys.stderr.write(f"CUDA error {failed} in what was profiled\n")
        code = code or 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    # Workers would wait for a parent that has gone, and ncu for them.
    if multiprocessing := sys.modules.get("multiprocessing"):
        for child in multiprocessing.active_children():
            child.terminate()
    os._exit(code)
