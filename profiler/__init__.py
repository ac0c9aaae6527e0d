"""cyinst: where every cycle of a CUDA kernel went, and what a change really did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profiler.accounting import account
    from profiler.attribution import attribute_report
    from profiler.compare import compare
    from profiler.errors import CyinstError
    from profiler.model import Work
    from profiler.ncu_parse import load
    from profiler.ranges import annotate

__version__ = "0.1.0"
__all__ = ["CyinstError", "Work", "__version__", "account", "annotate", "attribute_report", "compare", "load"]

_HOMES = {
    "load": "profiler.ncu_parse",
    "account": "profiler.accounting",
    "annotate": "profiler.ranges",
    "attribute_report": "profiler.attribution",
    "compare": "profiler.compare",
    "Work": "profiler.model",
    "CyinstError": "profiler.errors",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `import profiler` and `cyinst --help` stay instant.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'profiler' has no attribute {name!r}")
