"""A function and its arguments -> a file, and ``python -m profiler.payload FILE``, which calls it in an NVTX range.

For sessions that have no script to run again: notebooks and prompts.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler import relaunch
from profiler.errors import UsageError
from profiler.ranges import annotate


def pack(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    name: str,
    warmup: int,
    process_wide: bool,
) -> bytes:
    """Return what another process needs to call a function. Raises UsageError for what cannot be sent there.

    With cloudpickle that is nearly everything, without it what can be imported by its name.
    """
    remedy = "put it in a module that can be imported, or install cloudpickle"
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        body = pickler.dumps((fn, args, kwargs))
    except Exception as error:  # whatever a user's __reduce__ raises
        reason = " ".join(str(error).split())
        raise UsageError(f"profile({name}): cannot be sent to a process of its own ({reason}): {remedy}") from None
    if pickler is pickle and b"__main__" in body:
        raise UsageError(f"profile({name}): is, or uses, what the prompt alone defines: {remedy}")
    # A session's working folder is an empty word on its path; the other process starts in the same folder.
    head = {"path": sys.path, "name": name, "warmup": warmup, "process_wide": process_wide, "body": body}
    return pickle.dumps(head)


def command(file: Path) -> list[str]:
    """Return the words that run a payload."""
    return [sys.executable, "-m", "profiler.payload", str(file)]


def main(file: str) -> None:
    """Call the function of a payload: first to warm up, then once in its range."""
    with open(file, "rb") as stream:
        head = pickle.load(stream)
    sys.path[:] = head["path"]
    fn, args, kwargs = pickle.loads(head["body"])
    for _ in range(head["warmup"]):
        fn(*args, **kwargs)
    with annotate(head["name"], process_wide=head["process_wide"]):
        fn(*args, **kwargs)
    if failed := relaunch.synchronise():
        sys.exit(f"CUDA error {failed} in what was profiled")


if __name__ == "__main__":
    # Nothing that is called here profiles in its turn.
    os.environ[relaunch.VARIABLE] = relaunch.OFF
    main(sys.argv[1])
