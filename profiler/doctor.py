"""What is installed, which ncu, may counters be read, and the remedy for each obstacle.

``examine`` looks at a System (by default this machine) and returns a Diagnosis. It reads files and asks tools
for their version; it profiles and changes nothing. What it cannot find out is ``unknown``, never ``ok``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from glob import glob
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from profiler.nvdisasm import wheel_places

Group = Literal["reading", "capturing"]
Status = Literal["ok", "missing", "problem", "unknown"]
Version = tuple[int, ...]
Gpu = tuple[str, Version, bool]  # name, compute capability (empty: unknown), MIG

SCHEMA = "cyinst.doctor/1"
TIMEOUT = 10.0
# First ncu of a CUDA toolkit, that toolkit, and the Linux driver branch that its release notes name ("CUDA Toolkit
# and Corresponding Driver Versions"). Which ncu belongs to which toolkit: the labels of
# https://anaconda.org/nvidia/nsight-compute. Later ncu are held to 580, the lowest branch for any CUDA 13.x.
_BRANCHES: tuple[tuple[Version, str, int], ...] = (
    ((2024, 1), "12.4", 550), ((2024, 2), "12.5", 555), ((2024, 3), "12.6", 560),
    ((2025, 1), "12.8", 570), ((2025, 2), "12.9", 575), ((2025, 3), "13.0", 580),
)  # fmt: skip
_NCU_PLACES = (
    "/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/usr/lib/nsight-compute/ncu", r"C:\Program Files\NVIDIA Corporation\Nsight Compute *\ncu.bat",
)  # fmt: skip
# Who may hold the counters, by the name in /proc/<pid>/comm.
_HOLDERS = ("nv-hostengine", "dcgm-exporter", "nsys", "ncu")
_OPEN = "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/ncu.conf and reload the driver"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at, what was found, and the remedy where it is not as it should be."""

    name: str
    group: Group
    status: Status
    detail: str
    remedy: str | None = None
    required: bool = True

    @property
    def obstacle(self) -> bool:
        """Whether it stands in the way: required, and missing or a problem."""
        return self.required and self.status in ("missing", "problem")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks, in the order in which to put things right."""

    checks: tuple[Check, ...]

    def obstacles(self, group: Group) -> tuple[Check, ...]:
        """Return the checks of a group that stand in the way."""
        return tuple(c for c in self.checks if c.group == group and c.obstacle)

    @property
    def can_read(self) -> bool:
        """Whether reports can be read here."""
        return not self.obstacles("reading")

    @property
    def can_capture(self) -> bool:
        """Whether no obstacle to capturing was found; what is unknown does not count as one."""
        return not self.obstacles("capturing")

    def to_dict(self) -> dict[str, Any]:
        """Return the ``cyinst.doctor/1`` document."""
        head = {"schema": SCHEMA, "can_read": self.can_read, "can_capture": self.can_capture}
        return {**head, "checks": [asdict(c) for c in self.checks]}


@dataclass(frozen=True)
class System:
    """The machine as the examination sees it; tests put another in its place. No method raises."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    platform: str = sys.platform
    python: Version = sys.version_info[:3]
    executable: str = sys.executable
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    euid: int | None = field(default_factory=lambda: os.geteuid() if hasattr(os, "geteuid") else None)

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        """Run a tool for at most 10 s; None if it cannot be started, exit code 124 if it does not end."""
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
                timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"no answer within {TIMEOUT:.0f} s")
        except (OSError, ValueError):
            return None

    def read_text(self, path: str) -> str | None:
        """Return the text of a file, None if it cannot be read."""
        with suppress(OSError):
            return Path(path).read_text(encoding="utf-8", errors="replace")
        return None

    def which(self, name: str) -> str | None:
        """Return where PATH finds a program."""
        return shutil.which(name)

    def glob(self, pattern: str) -> list[str]:
        """Return the existing paths that match, sorted; a pattern without wildcards is one path."""
        return sorted(glob(pattern))

    def package(self, distribution: str) -> str | None:
        """Return the version of an installed distribution."""
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
        return None

    def requirements(self) -> Sequence[str]:
        """Return what cyinst declares to need; empty when it runs without being installed."""
        with suppress(metadata.PackageNotFoundError):
            return metadata.requires("cyinst") or ()
        return ()


class Tool(NamedTuple):
    """A program that answered ``--version`` as itself."""

    path: str
    version: str


def examine(system: System | None = None) -> Diagnosis:
    """Examine a machine, this one by default, and return what was found. Never raises for anything it finds."""
    system = system or System()
    return Diagnosis((*_reading(system), *capturing(system)))


def find_ncu(system: System, named: str | None = None) -> tuple[Tool | None, bool]:
    """Return the ncu that is ``named`` or on PATH, and True; else the newest of the usual places, and False."""
    tool = _newest(system, [named or system.which("ncu")], "Nsight Compute")
    if tool is not None or named is not None:
        return tool, True
    homes = [f"{system.environ[name]}/bin/ncu" for name in ("CUDA_HOME", "CUDA_PATH") if name in system.environ]
    places = [path for pattern in (*homes, *_NCU_PLACES) for path in system.glob(pattern)]
    return _newest(system, places, "Nsight Compute"), False


def _ask(system: System, *command: str) -> tuple[bool, str]:
    done = system.run(command)
    if done is None or done.returncode < 0:
        return False, "it cannot be started" if done is None else f"killed by signal {-done.returncode}"
    if done.returncode == 0:
        return True, done.stdout
    said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
    return False, said.splitlines()[-1].strip()


def _newest(system: System, paths: Sequence[str | None], marker: str) -> Tool | None:
    found = []
    for path in dict.fromkeys(filter(None, paths)):
        runs, said = _ask(system, path, "--version")
        # The marker tells Nsight Compute's ncu from the other well-known ncu, npm-check-updates.
        if runs and marker in said:
            found += [Tool(path, version) for version in re.findall(r"\bV(?:ersion )?(\d+\.[\d.]*\d)", said)[:1]]
    return max(found, key=lambda tool: _numbers(tool.version), default=None)


def _reading(system: System) -> Iterator[Check]:
    python, old = ".".join(map(str, system.python)), system.python < (3, 11)
    yield _read("Python", "problem" if old else "ok", python, "use Python 3.11 or newer" if old else None)
    yield _read("cyinst", "ok", system.package("cyinst") or "version unknown, not installed by pip")
    minima = dict(re.findall(r"(\w+)>=([\d.]+)", " ".join(system.requirements()).replace("-", "_")))
    yield _ncu_report(system, minima)
    yield _nvdisasm(system)
    for name in ("pandas", "rich", "nvtx", "protobuf"):
        yield _package(system, minima, name)
    parquet = _package(system, minima, "pyarrow", install="cyinst[parquet]")
    yield replace(parquet, detail=f"{parquet.detail} (optional: Parquet)", required=False)


def _package(system: System, minima: Mapping[str, str], name: str, install: str | None = None) -> Check:
    version, least = system.package(name), minima.get(name, "0")
    if version is None:
        return _read(name, "missing", "not installed", f"pip install '{install or name}'")
    if _numbers(version) < _numbers(least):
        return _read(name, "problem", f"{version}, older than {least}", f"pip install --upgrade '{name}>={least}'")
    return _read(name, "ok", version)


def _ncu_report(system: System, minima: Mapping[str, str]) -> Check:
    installed = _package(system, minima, "ncu_report")
    # In a child: the module is native and may take its process with it.
    works, said = _ask(system, system.executable, "-P", "-c", "import ncu_report")
    if installed.status == "missing":
        # An Nsight Compute installation brings the module along, without a version that pip knows.
        return _read("ncu_report", "ok", "imports, not installed by pip") if works else installed
    detail = f"{installed.detail}, but its import fails: {said}"
    return installed if works else _read("ncu_report", "problem", detail, "pip install --force-reinstall ncu-report")


def _nvdisasm(system: System) -> Check:
    # The newest that a wheel put beside the packages, or else the one on PATH.
    wheels = wheel_places(system.path, system.glob)
    tool = _newest(system, wheels, "disassembler") or _newest(system, [system.which("nvdisasm")], "disassembler")
    if tool is not None:
        return _read("nvdisasm", "ok", f"{tool.version}, {tool.path}")
    wheel = system.package("nvidia-cuda-nvdisasm")
    detail = f"wheel {wheel} is installed, but its program is gone or does not run" if wheel else "not found"
    remedy = "pip install --force-reinstall nvidia-cuda-nvdisasm"
    return _read("nvdisasm", "problem" if wheel else "missing", detail, remedy)


def capturing(system: System, named: str | None = None) -> Iterator[Check]:
    """Yield what capturing (with the ncu that is ``named``) asks for, as it is checked: a caller may stop early."""
    container = _container(system)
    ncu, check = _ncu(system, named)
    yield check
    driver, gpus, check = _driver(system, container)
    yield check
    if gpus:
        yield from _gpus(gpus, ncu)
        yield _driver_for_ncu(driver, ncu)
        yield _counters(system, driver, container)
        yield from _neighbours(system, container)
    else:
        remedy = "capture on a machine with an NVIDIA GPU" + (", in a container with --gpus all" if container else "")
        yield _capture("GPU", "missing", "no GPU", remedy)
        for name in ("MIG", "driver for ncu", "counters", "other profilers", "MPS"):
            yield _capture(name, "unknown", "no GPU")
    nvcc = _newest(system, [system.which("nvcc"), *system.glob("/usr/local/cuda*/bin/nvcc")], "Cuda compiler")
    cupy = [(name, system.package(name)) for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")]
    for name, found, remedy in (
        ("nvcc", f"{nvcc.version}, {nvcc.path}" if nvcc else None, "install the CUDA toolkit"),
        ("CuPy", next((f"{version}, {name}" for name, version in cupy if version), None), "pip install cupy-cuda13x"),
    ):
        detail = f"{found or 'not found'} (optional: builds specimens)"
        yield replace(_capture(name, "ok" if found else "missing", detail, None if found else remedy), required=False)


def _ncu(system: System, named: str | None) -> tuple[Tool | None, Check]:
    tool, on_path = find_ncu(system, named)
    if tool is not None and on_path:
        return tool, _capture("ncu", "ok", f"{tool.version}, {tool.path}")
    stranger = system.which("ncu")
    note = f"; {stranger} does not answer as Nsight Compute" if stranger else ""
    if tool is None:
        remedy = "install Nsight Compute from https://developer.nvidia.com/nsight-compute or with the CUDA toolkit"
        return None, _capture("ncu", "missing", f"not on PATH, nor in the usual places{note}", remedy)
    folder = re.split(r"[\\/]ncu(?:\.bat)?$", tool.path)[0]
    remedy = f'set "PATH={folder};%PATH%"' if system.platform == "win32" else f'export PATH="{folder}:$PATH"'
    return tool, _capture("ncu", "problem", f"{tool.version}, {tool.path}, is not on PATH{note}", remedy)


def _driver(system: System, container: str | None) -> tuple[str | None, tuple[Gpu, ...], Check]:
    # The kernel module tells its version, and device files the GPUs, even where nvidia-smi is missing or fails.
    module = re.findall(r"Kernel Module.*?\s(\d+\.[\d.]+)", system.read_text("/proc/driver/nvidia/version") or "")
    version = module[0] if module else None
    gpus: tuple[Gpu, ...] = (("NVIDIA GPU", (), False),) * len(system.glob("/dev/nvidia[0-9]*"))
    smi = system.which("nvidia-smi") or next(iter(system.glob("/usr/lib/wsl/lib/nvidia-smi")), None)
    if smi is None:
        detail = f"{version}, without nvidia-smi" if version else "no NVIDIA driver found"
        remedy = "start the container with --gpus all" if container else "install NVIDIA's driver with nvidia-smi"
        return version, gpus, _capture("driver", "problem" if version else "missing", detail, remedy)
    query = "--query-gpu=name,driver_version"
    works, said = _ask(system, smi, f"{query},compute_cap,mig.mode.current", "--format=csv,noheader")
    if not works and "not a valid field" in said:
        # Old drivers do not know the later two fields.
        works, said = _ask(system, smi, query, "--format=csv,noheader")
    if not works:
        detail = f"{version or 'version unknown'}: nvidia-smi fails: {said}"
        return version, gpus, _capture("driver", "problem", detail, "reload NVIDIA's driver (reboot), or reinstall it")
    rows = [[*line.split(", "), "", ""] for line in said.splitlines() if ", " in line]
    gpus = tuple((row[0], _numbers(row[2]), row[3].strip() == "Enabled") for row in rows)
    version = rows[0][1].strip() if rows else version
    return version, gpus, _capture("driver", "ok" if version else "unknown", version or "nvidia-smi sees no GPU")


def _gpus(gpus: Sequence[Gpu], ncu: Tool | None) -> Iterator[Check]:
    counted = Counter(name + (f" ({'.'.join(map(str, cc))})" if cc else "") for name, cc, _ in gpus)
    detail = ", ".join(f"{n} x {name}" for name, n in counted.items())
    best, remedy = max(cc for _, cc, _ in gpus), None
    if () < best < (7, 0):
        detail, remedy = f"{detail}: current ncu supports 7.0 and newer", "capture on a newer GPU"
    # CUDA 13.0 dropped Volta. NVIDIA lists it as supported by ncu 2024.1, and no longer by current versions.
    elif () < best < (7, 5) and ncu is not None and _numbers(ncu.version) >= (2025, 3):
        detail, remedy = f"{detail}: ncu {ncu.version} may not support Volta", "use ncu 2025.2 (CUDA 12.9) or older"
    yield _capture("GPU", "problem" if remedy else "ok", detail, remedy)
    on = sum(mig for _, _, mig in gpus)
    # NVIDIA's CUPTI documentation, "Multi-Instance GPU": isolated compute instances can be profiled.
    detail = f"on for {on} of {len(gpus)}: an instance that shares its units with another may not be profiled"
    remedy = "use a compute instance as large as its GPU instance, or a GPU without MIG"
    yield _capture("MIG", "problem", detail, remedy) if on else _capture("MIG", "ok", "off")


def _driver_for_ncu(driver: str | None, ncu: Tool | None) -> Check:
    if ncu is None or driver is None:
        return _capture("driver for ncu", "unknown", "no ncu" if ncu is None else "driver version unknown")
    branch, rows = _numbers(driver)[0], [row for row in _BRANCHES if row[0] <= _numbers(ncu.version)]
    if not rows:
        return _capture("driver for ncu", "unknown", f"which driver ncu {ncu.version} needs is not on record")
    _, cuda, least = rows[-1]
    if branch >= least:
        return _capture("driver for ncu", "ok", f"ncu {ncu.version} asks for {least} or newer")
    fits = [row for row in _BRANCHES if row[2] <= branch]
    other = ".".join(map(str, fits[-1][0])) + f" (CUDA {fits[-1][1]})" if fits else "older than 2024.1"
    detail = f"{driver} may be too old for ncu {ncu.version}: CUDA {cuda} and newer ask for {least}"
    return _capture("driver for ncu", "problem", detail, f"update the driver to {least} or newer, or use ncu {other}")


def _counters(system: System, driver: str | None, container: str | None) -> Check:
    wsl = "microsoft" in (system.read_text("/proc/version") or "").lower()
    if wsl or system.platform == "win32":
        detail = f"{'WSL: ' if wsl else ''}the Windows driver decides who may read them"
        remedy = "in Windows' NVIDIA Control Panel: Developer > Manage GPU Performance Counters > allow all users"
        return _capture("counters", "unknown", detail, remedy)
    # The option is NVreg_RestrictProfilingToAdminUsers; drivers show it under one name or the other.
    pattern = r"^(?:RmProfilingAdminOnly|(?:NVreg_)?RestrictProfilingToAdminUsers):\s*(\d)"
    restricted = re.search(pattern, system.read_text("/proc/driver/nvidia/params") or "", re.MULTILINE)
    if restricted is None:
        remedy = "should a capture fail with ERR_NVGPUCTRPERM: run under sudo, or ask the administrator"
        return _capture("counters", "unknown", "/proc/driver/nvidia/params does not say who may read them", remedy)
    if restricted[1] == "0":
        return _capture("counters", "ok", "open to all users")
    if _administrator(system, driver):
        return _capture("counters", "ok", "for administrators only, and this process is one")
    user = "root without the host's CAP_SYS_ADMIN" if system.euid == 0 else "an ordinary user"
    where, host = (f" in a container ({container})", " on the host") if container else ("", "")
    ways = {None: "run under sudo", "Kubernetes": "run as root with SYS_ADMIN in securityContext.capabilities.add"}
    remedy = ways.get(container, "start the container as root with --cap-add=SYS_ADMIN")
    detail = f"for administrators only (ERR_NVGPUCTRPERM): this is {user}{where}"
    return _capture("counters", "problem", detail, f"{remedy}; or, as administrator{host}, {_OPEN}")


def _administrator(system: System, driver: str | None) -> bool:
    # The driver asks for capabilities of the host: those of a user namespace (rootless container) do not count.
    if (system.read_text("/proc/self/uid_map") or "0 0 4294967295").split() != ["0", "0", "4294967295"]:
        return False
    effective = re.search(r"CapEff:\s*([0-9a-fA-F]+)", system.read_text("/proc/self/status") or "")
    if effective is None:
        return system.euid == 0
    # CAP_SYS_ADMIN is 21. From branch 565 on CAP_PERFMON, 38, is enough (NVIDIA's page on ERR_NVGPUCTRPERM).
    bits = (1 << 21) | ((1 << 38) if _numbers(driver or "0") >= (565,) else 0)
    return bool(int(effective[1], 16) & bits)


def _container(system: System) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in system.environ:
        return "Kubernetes"
    for path, kind in (("/run/.containerenv", "Podman"), ("/.dockerenv", "Docker"), ("/.singularity.d", "Apptainer")):
        if system.glob(path):
            return kind
    found = re.search(r"docker|kubepods|containerd|libpod|lxc", system.read_text("/proc/1/cgroup") or "")
    return found[0] if found else None


def _neighbours(system: System, container: str | None) -> Iterator[Check]:
    running = {(system.read_text(path) or "").strip() for path in system.glob("/proc/[0-9]*/comm")}
    held = [name for name in _HOLDERS if name in running]
    names, dcgm = ", ".join(held), "nv-hostengine" in held or "dcgm-exporter" in held
    # DCGM usually runs on the host, where a container does not see it.
    clear = "none running that this container can see" if container else "none running"
    remedy = f"{'dcgmi profile --pause (afterwards --resume)' if dcgm else 'wait for it to end'}, or stop {names}"
    detail = f"{names} running: may hold the counters" if held else clear
    yield _capture("other profilers", "problem" if held else "ok", detail, remedy if held else None)
    # A comm has 15 characters at most.
    mps = [f"{name} runs" for name in sorted(running) if name.startswith("nvidia-cuda-mps")]
    mps += [f"{name} is set" for name in sorted(system.environ) if name.startswith("CUDA_MPS_")]
    detail = f"{mps[0]}: work of other processes may run beside the kernel" if mps else "off"
    remedy = "echo quit | nvidia-cuda-mps-control, and unset the CUDA_MPS_ variables"
    yield _capture("MPS", "problem" if mps else "ok", detail, remedy if mps else None)


def _read(name: str, status: Status, detail: str, remedy: str | None = None) -> Check:
    return Check(name, "reading", status, detail, remedy)


def _capture(name: str, status: Status, detail: str, remedy: str | None = None) -> Check:
    return Check(name, "capturing", status, detail, remedy)


def _numbers(version: str) -> Version:
    return tuple(map(int, re.findall(r"\d+", version)))
