"""cyinst: where every cycle of a CUDA kernel went, and what a change really did."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profiler.accounting import account
    from profiler.attribution import attribute_report
    from profiler.compare import compare
    from profiler.errors import CyinstError
    from profiler.from_python import capture, profile
    from profiler.model import Work
    from profiler.ncu_parse import load
    from profiler.ranges import annotate

__version__ = "0.1.0"
__all__ = [
    "CyinstError", "Work", "__version__", "account", "annotate", "attribute_report", "capture", "compare", "load",
    "profile",
]  # fmt: skip

_HOMES = {
    "load": "profiler.ncu_parse",
    "account": "profiler.accounting",
    "annotate": "profiler.ranges",
    "attribute_report": "profiler.attribution",
    "capture": "profiler.from_python",
    "compare": "profiler.compare",
    "profile": "profiler.from_python",
    "Work": "profiler.model",
    "CyinstError": "profiler.errors",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `import profiler` and `cyinst --help` stay instant.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'profiler' has no attribute {name!r}")


class _Package(ModuleType):
    """The package, in which ``compare`` and ``capture`` stay functions when the rooms of these names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
