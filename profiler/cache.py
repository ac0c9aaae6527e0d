"""What was worked out before and would take long again: entries by kind and key, in the user's cache folder.

An entry is a file ``<folder>/<kind>/<key>``. A cache that cannot be read or written costs time and nothing else. The
folder is $CYINST_CACHE, or ``cyinst`` in the user's cache folder; CYINST_CACHE=off keeps nothing and uses nothing.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# The value of CYINST_CACHE that switches the cache off; ./off is a folder of that name.
OFF = "off"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Kind(NamedTuple):
    """Entries of one sort: their folder, and how many of them and how many bytes are kept; the least used go."""

    name: str
    entries: int
    size: int = 256 << 20


def folder() -> Path | None:
    """Return where entries are kept, None when the user switched the cache off."""
    own = os.environ.get("CYINST_CACHE")
    if own:
        return None if own == OFF else Path(own)
    local = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    if local:
        return Path(local) / "cyinst"
    # Without a home directory expanduser leaves the tilde; then a folder of this name here is the worst of it.
    return Path(os.path.expanduser("~")) / ".cache" / "cyinst"


def place(kind: Kind, key: str) -> Path | None:
    """Return the file of an entry, whether it is there or not; None when the cache is off."""
    root = folder()
    return None if root is None else root / kind.name / key


def get(kind: Kind, key: str) -> bytes | None:
    """Return an entry's bytes; None when it is not there, or others than this user could have written it."""
    path = place(kind, key)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            if not _own(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    # Its time says when it was last of use.
    with suppress(OSError):
        os.utime(path)
    return data


def put(kind: Kind, key: str, data: bytes) -> Path | None:
    """Keep an entry and return its file, None when that cannot be done; a reader never sees half of it."""
    path = place(kind, key)
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError:
        return None
    _trim(path.parent, kind)
    return path


def _own(status: os.stat_result) -> bool:
    # Windows has no such owner and mode; there the user's folder is the user's alone.
    return sys.platform == "win32" or (status.st_uid == os.getuid() and not status.st_mode & _WRITABLE_BY_OTHERS)


def _trim(where: Path, kind: Kind) -> None:
    """Remove the entries that were not used for longest, down to nine tenths: not every write has to remove some."""
    found: list[tuple[int, int, str]] = []
    with suppress(OSError), os.scandir(where) as files:
        for file in files:
            # Another process may remove it meanwhile.
            with suppress(OSError):
                status = file.stat()
                found.append((status.st_mtime_ns, status.st_size, file.path))
    number, size = len(found), sum(entry[1] for entry in found)
    if number <= kind.entries and size <= kind.size:
        return
    # The newest stays, however large: it was kept a moment ago.
    for _, freed, path in sorted(found)[:-1]:
        if number <= kind.entries * 9 // 10 and size <= kind.size * 9 // 10:
            break
        with suppress(OSError):
            os.unlink(path)
        number, size = number - 1, size - freed
