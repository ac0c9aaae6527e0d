"""A bug to plant in a copy of a bundled specimen, and what ``verify`` must say of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


@dataclass(frozen=True)
class PlantedBug:
    """In a file of the specimen ``old`` becomes ``new``; ``variant`` must get ``verdict``, for ``why``."""

    specimen: ClassVar[str]
    name: str
    file: str
    old: str
    new: str
    variant: str
    verdict: str
    why: str

    def plant(self, folder: Path) -> Path:
        """Return the specimen of a copy of the kernels in which the bug is."""
        for part in ("formats", self.specimen):
            shutil.copytree(KERNELS / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / self.specimen / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.name}: {text.count(self.old)} places in {self.file}"
        path.write_text(text.replace(self.old, self.new))
        return folder / self.specimen
