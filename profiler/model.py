"""What a report holds, as frozen values: Report -> LaunchProfile -> Metric, with the conditions of the capture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler.errors import UsageError
from profiler.vocabulary import MetricSpec

Scalar = int | float | str


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances of a metric: values, and the id of each (absolute PC, opcode string, ...) or None."""

    values: tuple[Scalar, ...]
    ids: tuple[Scalar, ...] | None

    def __len__(self) -> int:
        return len(self.values)

    def by_id(self) -> dict[Scalar, Scalar]:
        """Return {correlation id: value}; empty when the metric carries no ids."""
        return dict(zip(self.ids, self.values, strict=True)) if self.ids is not None else {}


@dataclass(frozen=True, slots=True)
class Metric:
    """One collected metric. ``value`` is None where the report has the metric but no total (instances only, nvlink)."""

    name: str
    unit: str
    value: Scalar | None
    instances: Instances | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU that ran a launch; a field is None where the report does not say."""

    name: str | None
    compute_capability: tuple[int, int] | None
    sm_count: int | None
    schedulers_per_sm: int | None
    max_warps_per_scheduler: int | None = None

    @property
    def schedulers(self) -> int | None:
        """Warp schedulers (SMSPs) of the whole device."""
        if self.sm_count is None or self.schedulers_per_sm is None:
            return None
        return self.sm_count * self.schedulers_per_sm

    @property
    def cc(self) -> str | None:
        """Compute capability as text, ``9.0``."""
        return None if self.compute_capability is None else "{}.{}".format(*self.compute_capability)


@dataclass(frozen=True, slots=True)
class NvtxRange:
    """An NVTX range that was open at the launch. ``kind`` is ``push_pop`` or ``start_end``; outermost first."""

    domain: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A capture setting and where it was read: ``report``, ``command line`` or ``ncu default``. None is unknown."""

    value: str | None
    source: str | None

    def __str__(self) -> str:
        return "unknown" if self.value is None else self.value


UNKNOWN = Setting(None, None)


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a report was captured. Strings are None where the report does not say; nothing is guessed.

    ``ncu_version`` is the writer's. ``cache_control`` and ``replay_mode`` come from the recorded command line (ncu
    2022.2 and later), with ncu's documented default where the command line does not name them.
    """

    ncu_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    created: int | None = None
    command_line: str | None = None
    clock_control: Setting = UNKNOWN
    cache_control: Setting = UNKNOWN
    replay_mode: Setting = UNKNOWN
    import_source: Setting = UNKNOWN


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """One profiled result: a kernel launch or, by ``workload``, a range, a graph or a command list.

    ``index`` counts over the whole report. ``grid``/``block``/``cluster`` are None where they do not apply.
    ``clocks_locked`` is what the container says of the clock lock during this launch, None if it says nothing.
    """

    index: int
    range_index: int
    action_index: int
    workload: str
    kernel: str
    demangled: str
    mangled: str
    device: Device
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    nvtx: tuple[NvtxRange, ...]
    sections: tuple[str, ...]
    metrics: Mapping[str, Metric]
    source_files: Mapping[str, str] = field(default_factory=dict)
    clocks_locked: bool | None = None

    def number(self, metric: str | MetricSpec) -> float | int | None:
        """Return the total of a metric, None when it was not collected or holds no finite number (ncu writes NaN)."""
        for name in (metric,) if isinstance(metric, str) else metric.names:
            found = self.metrics.get(name)
            if found is not None and isinstance(found.value, int | float) and math.isfinite(found.value):
                return found.value
        return None

    def instances(self, metric: str | MetricSpec) -> Instances | None:
        """Return the instances of a metric, None when it has none."""
        for name in (metric,) if isinstance(metric, str) else metric.names:
            found = self.metrics.get(name)
            if found is not None and found.instances is not None:
                return found.instances
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """A loaded .ncu-rep. ``problems`` are the lines that say what of the file could not be used."""

    path: str
    launches: tuple[LaunchProfile, ...]
    conditions: Conditions
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """Declared work of a launch: ``macs`` multiply-accumulates (not FLOPs; one MAC is two), and what it is called."""

    macs: float
    label: str = ""

    def __post_init__(self) -> None:
        if not self.macs > 0:
            raise UsageError(f"work must be a positive number of MACs, not {self.macs}")

    @property
    def gmac(self) -> float:
        """Billions of MACs."""
        return self.macs / 1e9

    @classmethod
    def gemm(cls, m: int, n: int, k: int) -> Work:
        """Return the work of an (m x k) by (k x n) product: m*n*k MACs."""
        if min(m, n, k) < 1:
            raise UsageError(f"GEMM sizes must be positive, not {m},{n},{k}")
        return cls(float(m) * n * k, f"{m} x {n} x {k}")
