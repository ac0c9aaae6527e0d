"""Reports that were read before: the reader's answers in the cache, by all that makes them what they are.

The key covers the bytes of the file, what was asked of it, the sources that make the answer of it and NVIDIA's module
that is installed. An entry is a checksum and the pickled Report, packed to a seventh.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import zlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from profiler import cache, model
from profiler.model import Report

REPORTS = cache.Kind("reports", 1000)
# Bytes of an answer that are worth keeping, unpacked.
MOST = 32 << 20
# What decides what the answer to a request is.
MAKERS = tuple(Path(__file__).with_name(f"{name}.py") for name in ("container", "model", "ncu_parse", "vocabulary"))
_CHECKSUM = 32
_CLASSES = {"Report", "LaunchProfile", "Metric", "Instances", "Device", "NvtxRange", "Conditions", "Setting"}


@dataclass(frozen=True)
class Entry:
    """Where the answer to one request is kept. ``state`` is the file's when its bytes were hashed."""

    file: Path
    state: tuple[int, ...]
    key: str

    def recall(self) -> Report | None:
        """Return the Report under the path asked for; None when it is not kept or its entry is damaged."""
        data = cache.get(REPORTS, self.key)
        if data is None or data[:_CHECKSUM] != self._checksum(data[_CHECKSUM:]):
            return None
        # Whatever an entry of some other making does to pickle: the report is read anew.
        with suppress(Exception):
            report = _Unpickler(io.BytesIO(zlib.decompress(data[_CHECKSUM:]))).load()
            if isinstance(report, Report):
                return replace(report, path=str(self.file))
        return None

    def keep(self, report: Report, pickled: bytes) -> None:
        """Keep a Report and its pickled form, unless the file has changed since it was hashed, or it is large.

        Nor one with problems: what could not be read, for want of memory perhaps, may be read the next time.
        """
        if report.problems or len(pickled) > MOST or _state(self.file) != self.state:
            return
        packed = zlib.compress(pickled, 1)
        cache.put(REPORTS, self.key, self._checksum(packed) + packed)

    def _checksum(self, packed: bytes) -> bytes:
        # With the key: an entry under another's name is damage, too.
        return hashlib.sha256(self.key.encode() + packed).digest()


def find(file: Path, metrics: Collection[str] | None, instances: bool, sources: bool) -> Entry | None:
    """Return where the answer to a request of ``ncu_parse.load`` is kept; None when nothing is to be kept."""
    if cache.folder() is None:
        return None
    try:
        state = _state(file)
        key = hashlib.sha256(repr((sys.implementation.cache_tag, reader_identity())).encode())
        key.update(repr((None if metrics is None else sorted(metrics), instances, sources)).encode())
        for part in (*MAKERS, file):
            with part.open("rb") as stream:
                key.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError:
        return None
    return Entry(file, state, key.hexdigest())


def reader_identity() -> list[tuple[str, int, int]] | None:
    """Return (path, size, time) of the files of NVIDIA's module, without importing it; None when there is none."""
    with suppress(ImportError, ValueError):
        spec = find_spec("ncu_report")
        if spec is not None and spec.origin is not None:
            folders = spec.submodule_search_locations
            files = [Path(entry.path) for at in folders for entry in os.scandir(at)] if folders else [Path(spec.origin)]
            found = [(str(path), path.stat()) for path in sorted(files) if path.is_file()]
            return [(path, status.st_size, status.st_mtime_ns) for path, status in found]
    return None


class _Unpickler(pickle.Unpickler):
    """Makes the values of a Report and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == model.__name__ and name in _CLASSES:
            return getattr(model, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a report")


def _state(file: Path) -> tuple[int, ...]:
    with suppress(OSError):
        status = file.stat()
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    return ()
