"""What would stop a capture, before ncu is started: a few fast checks of the doctor's."""

from __future__ import annotations

from profiler.doctor import System, capturing, find_ncu
from profiler.errors import CaptureError, MissingToolError

# The last of the checks that matter here; those after it ask compilers for their version.
_LAST = "MPS"
# What may do harm, or may not: said, and left to ncu.
_DOUBTS = ("GPU", "MIG", "driver for ncu", "other profilers", "MPS")


def locate(ncu: str | None, system: System | None = None) -> str:
    """Return the ncu to use: ``ncu`` itself when it is given, else the one on PATH or in the usual places."""
    if ncu is not None:
        return ncu
    tool, _ = find_ncu(system or System())
    if tool is None:
        raise MissingToolError(
            "ncu was not found on PATH, nor in the usual places: install Nsight Compute, or name it with --ncu"
        )
    return tool.path


def preflight(ncu: str, system: System | None = None) -> list[str]:
    """Return lines of doubt about this machine. Raises MissingToolError or CaptureError for what cannot work."""
    doubts = []
    for check in capturing(system or System(), ncu):
        if check.name == "ncu" and check.status == "missing":
            raise MissingToolError(f"{ncu}: does not answer as Nsight Compute; name its ncu with --ncu")
        if check.name == "GPU" and check.status == "missing":
            raise MissingToolError(f"there is no NVIDIA GPU to profile on: {check.remedy}; --dry-run needs none")
        if check.name == "counters" and check.status == "problem":
            raise CaptureError(f"the counters are {check.detail}: {check.remedy}")
        if check.name in _DOUBTS and check.status == "problem":
            doubts.append(f"{check.name}: {check.detail}; {check.remedy}")
        if check.name == _LAST:
            break
    return doubts
