"""The cards' own sensors, through NVML -> clocks, temperature, power, and what holds the clocks down.

The only room that imports pynvml, inside a function. What a card does not tell is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# nvmlClocksEventReason*, by bit.
REASONS = {
    0x001: "idle", 0x002: "application clocks", 0x004: "power cap", 0x008: "hardware slowdown", 0x010: "sync boost",
    0x020: "software thermal slowdown", 0x040: "hardware thermal slowdown", 0x080: "power brake",
    0x100: "display clock",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """One card at one moment. ``pci`` is (domain, bus, device); ``reasons`` are why its clocks are not higher."""

    name: str | None
    pci: tuple[int, int, int] | None
    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    reasons: tuple[str, ...] | None


def read() -> tuple[Reading, ...]:
    """Read every card; () when pynvml, the library or a card is missing. Never raises."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return ()
    try:
        return tuple(_read(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount()))
    except Exception:
        return ()
    finally:
        _asked(pynvml.nvmlShutdown)


def of(readings: Sequence[Reading], pci: tuple[int, int, int] | None) -> Reading | None:
    """Return the reading of one card: the one at ``pci``, else the only one there is."""
    at = [r for r in readings if r.pci is not None and r.pci == pci]
    if at:
        return at[0]
    return readings[0] if len(readings) == 1 else None


def _read(nvml: Any, card: Any) -> Reading:
    name, pci = _asked(nvml.nvmlDeviceGetName, card), _asked(nvml.nvmlDeviceGetPciInfo, card)
    power, mask = _asked(nvml.nvmlDeviceGetPowerUsage, card), _asked(_reasons_call(nvml), card)
    return Reading(
        name=name.decode() if isinstance(name, bytes) else name,
        pci=None if pci is None else (int(pci.domain), int(pci.bus), int(pci.device)),
        sm_mhz=_asked(nvml.nvmlDeviceGetClockInfo, card, nvml.NVML_CLOCK_SM),
        memory_mhz=_asked(nvml.nvmlDeviceGetClockInfo, card, nvml.NVML_CLOCK_MEM),
        temperature_c=_asked(nvml.nvmlDeviceGetTemperature, card, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if power is None else power / 1000.0,
        reasons=None if mask is None else tuple(word for bit, word in REASONS.items() if mask & bit),
    )


def _reasons_call(nvml: Any) -> Callable[..., Any]:
    # Called throttle reasons before driver 535.
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    found: Callable[..., Any] = next(getattr(nvml, name) for name in names if hasattr(nvml, name))
    return found


def _asked(call: Callable[..., Any], *args: Any) -> Any:
    """Return what a call returns, None where the card does not support it."""
    try:
        return call(*args)
    except Exception:
        return None
