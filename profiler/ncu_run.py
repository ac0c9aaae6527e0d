"""A command line of ncu -> what it said and how it ended. Nothing that it started outlives the call."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

# How much of each stream is kept: a program may print without end.
KEPT_BYTES = 1 << 20
# What ncu gets to shut its program down after SIGTERM, before everything is killed.
GRACE_SECONDS = 5.0

# ncu's lines, also where the program left its own line unfinished before them.
_NCU = re.compile(r"==(PROF|WARNING|ERROR)== ?(.*)")
# `Profiling "NAME" - 0 (1/1): 0%....50%....100% - 4 passes`
_PROFILING = re.compile(r'^Profiling "(?P<kernel>.*?)"(?: - \d+(?: \(\d+/\d+\))?)?: (?P<rest>.*)$')
_PASSES = re.compile(r"- (\d+) pass(?:es)?$")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of ncu ended.

    ``code`` is ncu's exit code: the program's own when that failed, negative for a signal, None when the time was up.
    ``lines`` are ncu's, as (kind, text); ``said`` what the program wrote, standard error last.
    """

    code: int | None
    lines: tuple[tuple[str, str], ...]
    said: tuple[str, ...]
    available: tuple[str, ...]
    seconds: float

    def find(self, pattern: str) -> str | None:
        """Return the first of ncu's lines that holds a pattern."""
        return next((text for _, text in self.lines if re.search(pattern, text)), None)

    @property
    def profiled(self) -> tuple[str, ...]:
        """The kernels that ncu began to profile, as it names them: ``alpha(float *, int)``."""
        return tuple(found["kernel"] for _, text in self.lines if (found := _PROFILING.match(text)))

    @property
    def passes(self) -> int | None:
        """The passes of the last launch that was profiled; None where ncu did not come to its end."""
        found = [m for _, text in self.lines if text.startswith("Profiling") and (m := _PASSES.search(text))]
        return int(found[-1][1]) if found else None


@dataclass
class _Stream:
    """The last part of what one pipe carried, read by a thread of its own."""

    pipe: IO[bytes]
    heard: Callable[[bytes], None] | None = None
    kept: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while chunk := os.read(self.pipe.fileno(), 1 << 16):
            self.kept += chunk
            if len(self.kept) > KEPT_BYTES:
                # From a line's start on, and never without ncu's own lines, which are few.
                old = bytes(self.kept[: -KEPT_BYTES // 2])
                own = [line for line in old.split(b"\n") if line.startswith(b"==")][:100]
                self.kept[: -KEPT_BYTES // 2] = b"\n".join([*own, b""])
            if self.heard is not None:
                self.heard(chunk)

    def text(self) -> str:
        """Return what was kept. A stranger that holds the pipe open, and its thread, are left alone after a second."""
        self.thread.join(1.0)
        if not self.thread.is_alive():
            self.pipe.close()
        return bytes(self.kept).decode("utf-8", errors="replace")


def run(
    words: Sequence[str],
    *,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run ncu in a process group of its own and return how it ended; after ``timeout`` seconds the group is ended.

    ``progress`` hears ncu's lines as they come. Whatever leaves this function, KeyboardInterrupt and SIGTERM included,
    ends the whole group first. Raises OSError when ncu cannot be started.
    """
    begun = time.monotonic()

    def hear(chunk: bytes) -> None:
        for _, text in _NCU.findall(chunk.decode("utf-8", errors="replace")):
            progress(text)

    with _terminable():
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment), start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        code: int | None = None
        try:
            out, err = _Stream(process.stdout, hear), _Stream(process.stderr)
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout)
        finally:
            _end(process)
    return _outcome(code, out.text(), err.text(), time.monotonic() - begun)


def _outcome(code: int | None, out: str, err: str, seconds: float) -> Outcome:
    lines: list[tuple[str, str]] = []
    said: list[str] = []
    available: list[str] = []
    listing = False
    for line in out.splitlines():
        found = _NCU.search(line)
        if found is not None:
            lines.append((found[1], found[2].strip()))
            line, listing = line[: found.start()], False
        elif line.strip() == "Available Kernels:":
            listing = True
            continue
        elif listing and (entry := re.match(r"\s*\d+\. (.+)", line)):
            available.append(entry[1].strip())
            continue
        if line.strip():
            said.append(line.rstrip())
    said += [line.rstrip() for line in err.splitlines() if line.strip()]
    return Outcome(code, tuple(lines), tuple(said), tuple(available), seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group of a process: what it still holds after its leader's end as well."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    # A process that waits for a hung GPU may not die at once; it is not waited for any longer.
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by an exception, as Ctrl-C does: ncu is no child of the terminal."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                before[name] = signal.signal(getattr(signal, name), stop)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
