"""What was captured, how and in which conditions: ``NAME.cyinst.json`` beside ``NAME.ncu-rep``.

The report itself does not say which variant of which specimen ran, at what shape and with how much work, nor how warm
the card was. A sidecar belongs to one report, by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profiler.errors import ReportError
from profiler.model import Work
from profiler.nvml import Reading

SCHEMA = "cyinst.capture/1"


@dataclass(frozen=True, slots=True)
class Subject:
    """The variant that was launched: ``kernels`` are all that one launch of it ran, None where that is not known.

    ``git`` is the commit of the specimen's folder, ``dirty`` whether the folder differs from it; None outside of git.
    """

    specimen: str
    variant: str
    idea: str
    shape: Mapping[str, int]
    path: str
    kernels: tuple[str, ...] | None = None
    git: str | None = None
    dirty: bool | None = None

    def __str__(self) -> str:
        return f"{self.specimen}:{self.variant}"


@dataclass(frozen=True, slots=True)
class Try:
    """One run of ncu: the sampling interval that was asked for (None: ncu's choice), and what it gave."""

    interval: int | None
    cycles: float | None
    samples: int | None
    dropped_bytes: int | None
    # ncu says nothing of samples that no longer fitted.
    buffer_full: bool = False

    @property
    def lossy(self) -> bool:
        """Whether samples are known to be lost."""
        return bool(self.dropped_bytes) or self.buffer_full


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Everything about a capture that its report does not hold.

    ``seconds`` is how long ncu ran for the kept report, ``tries`` all runs with the kept one at ``kept``.
    ``not_collected`` are the metrics that the plan asked for and ncu left out; ``cubin`` is the SHA-256 of the code.
    """

    report: str
    sha256: str
    created: str
    cyinst: str
    ncu: str | None
    plan: str
    command: tuple[str, ...]
    program: tuple[str, ...]
    kernel: str
    passes: int | None
    seconds: float
    subject: Subject | None
    work: Work | None
    before: Reading | None
    after: Reading | None
    tries: tuple[Try, ...]
    kept: int
    not_collected: tuple[str, ...]
    cubin: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the ``cyinst.capture/1`` document."""
        return {"schema": SCHEMA, **asdict(self)}


def place(report: Path) -> Path:
    """Return where the sidecar of a report lies."""
    return report.with_name(f"{report.name.removesuffix('.ncu-rep')}.cyinst.json")


def digest(report: Path) -> str:
    """Return the SHA-256 of a file."""
    with report.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read(report: Path) -> Sidecar | None:
    """Return what is known of a report's capture, None without a sidecar.

    Raises ReportError when the sidecar is damaged, or is that of another report.
    """
    file = place(report)
    if file == report or not file.is_file() or not report.is_file():
        return None
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        found = _from(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ReportError(f"{file}: is no {SCHEMA} document of this version; delete it, or capture again") from None
    if found.sha256 != digest(report):
        raise ReportError(f"{file}: describes another report than {report.name}; delete it, or capture again")
    return found


def _from(document: dict[str, Any]) -> Sidecar:
    if document.pop("schema") != SCHEMA:
        raise ValueError(SCHEMA)
    subject, work = document["subject"], document["work"]
    before, after = (None if r is None else _reading(r) for r in (document["before"], document["after"]))
    if subject is not None:
        kernels = subject["kernels"]
        subject = Subject(**{**subject, "kernels": None if kernels is None else tuple(kernels)})
    lists = {name: tuple(document[name]) for name in ("command", "program", "not_collected")}
    return Sidecar(
        **{
            **document,
            **lists,
            "subject": subject,
            "work": None if work is None else Work(**work),
            "before": before,
            "after": after,
            "tries": tuple(Try(**one) for one in document["tries"]),
        }
    )


def _reading(r: dict[str, Any]) -> Reading:
    pci, reasons = (None if r[name] is None else tuple(r[name]) for name in ("pci", "reasons"))
    return Reading(**{**r, "pci": pci, "reasons": reasons})
