"""What ncu said and how it ended -> the one line that says what stood in the way, and the remedy.

The texts are ncu's of 2025.3, recorded in tests/data/ncu, and those that people quote in public trackers.
"""

from __future__ import annotations

import re
import signal

from profiler.doctor import System, capturing
from profiler.errors import CaptureError, NoLaunchError
from profiler.ncu_command import Request
from profiler.ncu_run import Outcome

# Kernels that wait for other GPUs, or for all of their own blocks.
_COLLECTIVE = re.compile(r"nccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cooperative", re.I)
_LISTED = 8
_SAID_LINES = 3


def obstacle(outcome: Outcome, request: Request, report_written: bool) -> CaptureError | None:
    """Return what kept a run of ncu from its report, None when nothing did.

    A program that failed counts even when there is a report: its launch may have computed anything.
    """
    if report_written and outcome.code == 0:
        return None
    text = _time_up(outcome, request) or _refused(outcome) or _not_started(outcome, request) or _failed(outcome)
    if text is None and (nothing := _nothing(outcome, request)) is not None:
        return NoLaunchError(nothing)
    if text is None:
        last = next((line for kind, line in reversed(outcome.lines) if kind != "PROF"), "it did not say why")
        text = f"ncu left no whole report ({last}){_ended(outcome)}"
    return CaptureError(text)


def _time_up(outcome: Outcome, request: Request) -> str | None:
    if outcome.code is not None:
        return None
    limit = f"the time limit of {request.timeout:g} s (--timeout)"
    if not outcome.profiled:
        waited = "before any launch that was asked for" if outcome.find("^Connected") else "before the program began"
        return f"{limit} was up {waited}: raise it, or choose an earlier launch{_last_words(outcome)}"
    kernel = outcome.profiled[-1]
    if outcome.passes is not None:
        return f"{limit} was up after {kernel} had been profiled, while the program went on: raise it"
    if _COLLECTIVE.search(kernel):
        why = (
            "it looks like a collective, which waits for launches that kernel replay does not repeat: profile the "
            "range of all of them with --replay range, or --replay app-range, and --plan quick"
        )
    elif request.replay == "kernel":
        why = (
            "kernel replay launches it again for each pass, and a kernel that waits for others, or for the host, never "
            "ends so: try --replay application, or --replay range around all that belong together; --plan quick has "
            "the fewest passes"
        )
    else:
        why = f"it did not end under {request.replay} replay; --plan quick has the fewest passes"
    return f"{limit} was up while ncu was profiling {kernel}: {why}"


def _refused(outcome: Outcome) -> str | None:
    """The driver or ncu refuses to profile here at all."""
    if outcome.find("ERR_NVGPUCTRPERM"):
        return f"the driver does not let this user read the counters (ERR_NVGPUCTRPERM): {_permission()}"
    if outcome.find("LibraryNotLoaded"):
        return (
            "ncu found no driver library that it can use (LibraryNotLoaded): the driver is too old for this ncu or, in "
            "a container, not all of its libraries are there (NVIDIA_DRIVER_CAPABILITIES=all)"
        )
    if outcome.find("[Dd]river is not compatible with Nsight Compute"):
        return (
            "the driver is not compatible with this ncu: update the driver, or name an older ncu with --ncu; cyinst "
            "doctor says which fits"
        )
    if outcome.find("driver resource was unavailable"):
        return (
            "another profiler holds the counters, and the driver lends them once for the whole machine: pause DCGM "
            "with dcgmi profile --pause (afterwards --resume), or wait until the other nsys or ncu ends"
        )
    if said := outcome.find("Profiling is not supported on device"):
        if "Linux (WSL)" in said or said.endswith("WSL"):
            return "ncu does not profile under this WSL: it takes Windows 11 and driver 525 or newer, or native Linux"
        return f"this ncu does not know the GPU ({said}): name one that fits with --ncu; cyinst doctor says which"
    if said := outcome.find(r"Multi-Instance|\bMIG\b"):
        return f"MIG: {said}: use a compute instance as large as its GPU instance, or a GPU without MIG"
    if outcome.find("lock.*clocks.*--clock-control"):
        return "ncu could not lock the clocks: leave them alone with --clock-control none"
    return None


def _permission() -> str:
    found = next((check for check in capturing(System()) if check.name == "counters"), None)
    if found is not None and found.status == "problem":
        return f"{found.detail}: {found.remedy}"
    return "run under sudo or as root with SYS_ADMIN, or ask the administrator; cyinst doctor looks closer"


def _not_started(outcome: Outcome, request: Request) -> str | None:
    if outcome.find("does not exist or is not an executable"):
        return f"{request.program[0]}: there is no such program, or it is not executable"
    if outcome.find("[Uu]nable to write to file|[Ff]ailed to (?:open|create|write) .*(?:file|report)"):
        return "the report cannot be written: is the folder there, writable and not full?"
    if said := outcome.find("unrecognised option|did not match any section|the argument .* is invalid"):
        return f"this ncu is too old, or too new, for what it was asked ({said}): name another one with --ncu"
    return None


def _failed(outcome: Outcome) -> str | None:
    found = re.search(r"returned an error code \((-?\d+)\)", outcome.find("returned an error code") or "")
    if found is None:
        failed = outcome.find("^Failed to profile")
        if failed is None:
            return None
        errors = [line for kind, line in outcome.lines if kind == "ERROR" and line != failed]
        return f"{failed}: {errors[0]}" if errors else failed
    code = int(found[1])
    # ncu passes on a signal by its bare number, as a shell would not.
    name = "" if outcome.said or not 0 < code < 32 else f", {_signal_name(code)} if it died of a signal"
    return (
        f"the program failed under ncu with exit code {code}{name}{_last_words(outcome)}; nothing is kept: does it "
        "run through without cyinst?"
    )


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"


def _nothing(outcome: Outcome, request: Request) -> str | None:
    """The program ran, and no launch was what was asked for."""
    if not outcome.find("No kernels were profiled"):
        return None
    if outcome.find("child processes requires"):
        return "a child process launched the kernels, and this ncu follows none: name a newer one with --ncu"
    wanted = []
    if request.kernel is not None:
        wanted.append(f"kernel {request.kernel!r}")
    if request.nvtx is not None:
        wanted.append(f"NVTX range {request.nvtx!r}")
    if request.skip:
        wanted.append(f"after {request.skip} others")
    if outcome.available:
        listed = ", ".join(dict.fromkeys(outcome.available[:_LISTED]))
        more = f" and {len(outcome.available) - _LISTED} more" if len(outcome.available) > _LISTED else ""
        return f"no launch was {', '.join(wanted) or 'profiled'}; the program launched {listed}{more}"
    if request.nvtx is not None:
        return (
            f"no launch was in {', '.join(wanted)}: a range of push and pop holds the launches of its own thread "
            "alone, and PyTorch launches backward kernels on others: use annotate(..., process_wide=True), and "
            "profile inside the range, not around it"
        )
    if wanted:
        return f"no launch was {', '.join(wanted)}: the program launched none, or fewer"
    return f"the program launched no kernel on a GPU{_last_words(outcome)}"


def _last_words(outcome: Outcome) -> str:
    """The last lines of the program itself, for a person who did not see it run."""
    said = " / ".join(" ".join(line.split())[:160] for line in outcome.said[-_SAID_LINES:])
    return f"; it said: {said}" if said else ""


def _ended(outcome: Outcome) -> str:
    if outcome.code is None or outcome.code == 0:
        return ""
    if outcome.code < 0:
        return f"; ncu died of {_signal_name(-outcome.code)}"
    return f"; ncu ended with exit code {outcome.code}"
