"""What can go wrong, by kind. An error is one line: what, where, what to do; its kind is the exit code."""

from __future__ import annotations

from typing import ClassVar


class CyinstError(Exception):
    """Base of every error that a user can meet; ``exit_code`` is what the command returns."""

    exit_code: ClassVar[int] = 1


class UsageError(CyinstError):
    """The request itself is malformed: a bad option value, or options that exclude each other."""

    exit_code = 2


class ReportError(CyinstError):
    """A report is missing, empty, damaged or not a report at all."""

    exit_code = 3


class NotComparableError(CyinstError):
    """Two launches must not be compared: other device, clock or cache control, or work."""

    exit_code = 4


class NoMatchError(CyinstError):
    """A launch or kernel filter selected nothing."""

    exit_code = 5


class MissingToolError(CyinstError):
    """A tool or optional package that the request needs is not installed."""

    exit_code = 6


class IncorrectError(CyinstError):
    """A specimen's variants were checked, and at least one result is wrong or cannot be vouched for."""

    exit_code = 7


class SpecimenError(CyinstError):
    """A specimen does not load, its source does not compile, or its launch fails."""

    exit_code = 8


class LaunchError(SpecimenError):
    """A variant's preparation or launch failed."""

    def __init__(self, where: str, reason: str) -> None:
        """``where`` names variant and shape; ``reason`` is the message without them."""
        super().__init__(f"{where}: {reason}")
        self.reason = reason


class CaptureError(CyinstError):
    """ncu ran, or tried to, and left no report of the launch that was asked for."""

    exit_code = 9


class NoLaunchError(CaptureError):
    """The program ran through under ncu, and no launch was the one that was asked for."""
