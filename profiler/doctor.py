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
from dataclasses import asdict, dataclass, field
from glob import glob
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from profiler import __version__

Group = Literal["reading", "capturing"]
Status = Literal["ok", "missing", "problem", "unknown"]
Version = tuple[int, ...]

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
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
    r"C:\Program Files\NVIDIA Corporation\Nsight Compute *\ncu.bat",
)
# Who may hold the counters, by the name in /proc/<pid>/comm, and how to make it let go.
_PAUSE = "dcgmi profile --pause (afterwards --resume)"
_HOLDERS = {"nv-hostengine": _PAUSE, "dcgm-exporter": _PAUSE, "nsys": "wait for nsys", "ncu": "wait for the other ncu"}
_UNRESTRICT = (
    "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/nvidia-profiling.conf"
    " and reload the driver or reboot"
)
_PANEL = "in Windows' NVIDIA Control Panel: Developer > Manage GPU Performance Counters > allow all users"
_NEEDS_GPU = ("driver for ncu", "MIG", "counters", "other profilers", "MPS")


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
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def which(self, name: str) -> str | None:
        """Return where PATH finds a program."""
        return shutil.which(name)

    def glob(self, pattern: str) -> list[str]:
        """Return the existing paths that match, sorted; a pattern without wildcards is one path."""
        return sorted(glob(pattern))

    def package(self, distribution: str) -> str | None:
        """Return the version of an installed distribution."""
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    def requirements(self) -> Sequence[str]:
        """Return what cyinst declares to need; empty when it runs without being installed."""
        try:
            return metadata.requires("cyinst") or ()
        except metadata.PackageNotFoundError:
            return ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that answered ``--version`` as itself."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class _Gpu:
    name: str
    capability: Version = ()
    mig: bool = False


def examine(system: System | None = None) -> Diagnosis:
    """Examine a machine, this one by default, and return what was found. Never raises for anything it finds."""
    system = system or System()
    return Diagnosis((*_reading(system), *_capturing(system)))


def find_nvdisasm(system: System) -> Tool | None:
    """Return nvdisasm: the newest that a PyPI wheel put beside the packages, or else the one on PATH."""
    folders = [Path(root or ".") / "nvidia" / "*" / "bin" for root in system.path]
    names = ("nvdisasm", "nvdisasm.exe", "*/nvdisasm.exe")
    wheels = [path for folder in folders for name in names for path in system.glob(str(folder / name))]
    return _newest(system, wheels, "disassembler") or _newest(system, [system.which("nvdisasm")], "disassembler")


def find_ncu(system: System) -> tuple[Tool | None, bool]:
    """Return Nsight Compute's ncu and whether it is the one on PATH; off PATH, the newest of the usual places."""
    tool = _newest(system, [system.which("ncu")], "Nsight Compute")
    if tool is not None:
        return tool, True
    homes = [f"{system.environ[name]}/bin/ncu" for name in ("CUDA_HOME", "CUDA_PATH") if name in system.environ]
    places = [path for pattern in (*homes, *_NCU_PLACES) for path in system.glob(pattern)]
    return _newest(system, places, "Nsight Compute"), False


def _newest(system: System, paths: Sequence[str | None], marker: str) -> Tool | None:
    found = []
    for path in dict.fromkeys(filter(None, paths)):
        answer = system.run([path, "--version"])
        # The marker tells Nsight Compute's ncu from the other well-known ncu, npm-check-updates.
        if answer is not None and answer.returncode == 0 and marker in answer.stdout:
            version = re.search(r"\bV(?:ersion )?(\d+\.[\d.]*\d)", answer.stdout)
            found.append(Tool(path, version[1] if version else "version unknown"))
    return max(found, key=lambda tool: _numbers(tool.version), default=None)


def _reading(system: System) -> Iterator[Check]:
    python, old = ".".join(map(str, system.python)), system.python < (3, 11)
    yield _read("Python", "problem" if old else "ok", python, "use Python 3.11 or newer" if old else None)
    yield _read("cyinst", "ok", __version__)
    needed = [re.match(r"([\w.-]+)\s*>=\s*([\d.]+)", text) for text in system.requirements()]
    minima = {m[1].lower().replace("_", "-"): m[2] for m in needed if m}
    yield _ncu_report(system, minima)
    yield _nvdisasm(system, minima)
    for name in ("pandas", "rich", "nvtx", "protobuf"):
        yield _package(system, minima, name)
    parquet = _package(system, minima, "pyarrow", install="cyinst[parquet]")
    yield _read("pyarrow", parquet.status, f"{parquet.detail} (optional: Parquet)", parquet.remedy, required=False)


def _package(system: System, minima: Mapping[str, str], name: str, install: str | None = None) -> Check:
    version, least = system.package(name), minima.get(name, "0")
    if version is None:
        return _read(name, "missing", "not installed", f"pip install '{install or name}'")
    if _numbers(version) < _numbers(least):
        return _read(name, "problem", f"{version}, older than {least}", f"pip install --upgrade '{name}>={least}'")
    return _read(name, "ok", version)


def _ncu_report(system: System, minima: Mapping[str, str]) -> Check:
    installed = _package(system, minima, "ncu-report")
    # In a child: the module is native and may take its process with it.
    child = system.run([system.executable, "-P", "-c", "import ncu_report; print(ncu_report.__file__)"])
    if child is not None and child.returncode == 0:
        if installed.status == "missing":
            # An Nsight Compute installation brings the module along, without a version that pip knows.
            return _read("ncu_report", "ok", f"version unknown, {_last(child.stdout)}")
        return _read("ncu_report", installed.status, installed.detail, installed.remedy)
    if installed.status == "missing":
        return _read("ncu_report", "missing", installed.detail, installed.remedy)
    detail = f"{installed.detail}, but its import fails: {_failure(child)}"
    return _read("ncu_report", "problem", detail, "pip install --force-reinstall ncu-report")


def _nvdisasm(system: System, minima: Mapping[str, str]) -> Check:
    wheel = _package(system, minima, "nvidia-cuda-nvdisasm")
    tool = find_nvdisasm(system)
    if tool is not None:
        old = wheel.status == "problem"
        return _read(
            "nvdisasm", wheel.status if old else "ok", f"{tool.version}, {tool.path}", wheel.remedy if old else None
        )
    if wheel.status == "missing":
        return _read("nvdisasm", "missing", "not found", wheel.remedy)
    detail = f"nvidia-cuda-nvdisasm {wheel.detail} is installed, but its program is gone or does not run"
    return _read("nvdisasm", "problem", detail, "pip install --force-reinstall nvidia-cuda-nvdisasm")


def _capturing(system: System) -> Iterator[Check]:
    container = _container(system)
    ncu, check = _ncu(system)
    yield check
    driver, gpus, check = _driver(system, container)
    yield check
    if gpus:
        yield _gpus(gpus, ncu)
        yield _driver_for_ncu(driver, ncu)
        yield _mig(gpus)
        yield _counters(system, driver, container)
        yield from _neighbours(system, container)
    else:
        remedy = "start the container with --gpus all" if container else "capture on a machine with an NVIDIA GPU"
        yield _capture("GPU", "missing", "no GPU", remedy)
        yield from (_capture(name, "unknown", "no GPU") for name in _NEEDS_GPU)
    nvcc = _newest(system, [system.which("nvcc"), *system.glob("/usr/local/cuda*/bin/nvcc")], "Cuda compiler")
    found = f"{nvcc.version}, {nvcc.path}" if nvcc else None
    yield _optional("nvcc", found, "install the CUDA toolkit")
    cupy = (f"cupy-cuda{major}x" for major in (13, 12, 11))
    found = next((f"{version} ({name})" for name in (*cupy, "cupy") if (version := system.package(name))), None)
    yield _optional("CuPy", found, "pip install cupy-cuda13x (cupy-cuda12x for a driver older than 580)")


def _ncu(system: System) -> tuple[Tool | None, Check]:
    tool, on_path = find_ncu(system)
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


def _driver(system: System, container: str | None) -> tuple[str | None, tuple[_Gpu, ...], Check]:
    # The kernel module names its version and its GPUs even where nvidia-smi is missing or fails.
    module = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", system.read_text("/proc/driver/nvidia/version") or "")
    version = module[1] if module else None
    texts = [system.read_text(path) or "" for path in system.glob("/proc/driver/nvidia/gpus/*/information")]
    gpus = tuple(_Gpu(model[1].strip()) for text in texts if (model := re.search(r"Model:(.+)", text)))
    smi = system.which("nvidia-smi") or next(iter(system.glob("/usr/lib/wsl/lib/nvidia-smi")), None)
    if smi is None and version is None:
        remedy = "start the container with --gpus all" if container else "install NVIDIA's driver"
        return None, gpus, _capture("driver", "missing", "no NVIDIA driver found", remedy)
    if smi is None:
        remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        remedy = remedy if container else "install the nvidia-smi of that driver"
        return version, gpus, _capture("driver", "problem", f"{version}, without nvidia-smi", remedy)
    query = "--query-gpu=name,driver_version"
    answer = system.run([smi, f"{query},compute_cap,mig.mode.current", "--format=csv,noheader"])
    if answer is not None and "not a valid field" in answer.stdout + answer.stderr:
        # Old drivers do not know the later two fields.
        answer = system.run([smi, query, "--format=csv,noheader"])
    if answer is None or answer.returncode != 0:
        detail = f"{version or 'version unknown'}: nvidia-smi fails: {_failure(answer)}"
        remedy = "install or reload NVIDIA's driver; after an update of it, reboot"
        return version, gpus, _capture("driver", "problem", detail, remedy)
    rows = [[*line.split(", "), "", ""] for line in answer.stdout.splitlines() if ", " in line]
    gpus = tuple(_Gpu(row[0], _numbers(row[2]), row[3].strip() == "Enabled") for row in rows)
    version = rows[0][1].strip() if rows else version
    return version, gpus, _capture("driver", "ok" if version else "unknown", version or "nvidia-smi sees no GPU")


def _gpus(gpus: Sequence[_Gpu], ncu: Tool | None) -> Check:
    counted = Counter(g.name + (f" ({'.'.join(map(str, g.capability))})" if g.capability else "") for g in gpus)
    detail = ", ".join(f"{n} x {name}" for name, n in counted.items())
    best = max(g.capability for g in gpus)
    if () < best < (7, 0):
        detail = f"{detail}: current ncu supports compute capability 7.0 and newer"
        return _capture("GPU", "problem", detail, "capture on a newer GPU")
    # CUDA 13.0 dropped Volta. NVIDIA lists it as supported by ncu 2024.1, and no longer by current versions.
    if () < best < (7, 5) and ncu is not None and _numbers(ncu.version) >= (2025, 3):
        detail = f"{detail}: ncu {ncu.version} may no longer support Volta"
        return _capture("GPU", "problem", detail, "use ncu 2025.2 (CUDA 12.9) or older")
    return _capture("GPU", "ok", detail)


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


def _mig(gpus: Sequence[_Gpu]) -> Check:
    on = sum(g.mig for g in gpus)
    if not on:
        return _capture("MIG", "ok", "off")
    # NVIDIA's CUPTI documentation, "Multi-Instance GPU": isolated compute instances can be profiled.
    detail = f"on for {on} of {len(gpus)}: an instance that shares its units with another may not be profiled"
    return _capture("MIG", "problem", detail, "use a compute instance as large as its GPU instance, or turn MIG off")


def _counters(system: System, driver: str | None, container: str | None) -> Check:
    wsl = "microsoft" in (system.read_text("/proc/version") or "").lower()
    if wsl or system.platform == "win32":
        detail = f"{'WSL: ' if wsl else ''}the Windows driver decides who may read them"
        return _capture("counters", "unknown", detail, _PANEL)
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
    detail = "for administrators only (ERR_NVGPUCTRPERM): this is "
    detail += "root without CAP_SYS_ADMIN" if system.euid == 0 else "an ordinary user"
    if container is None:
        return _capture("counters", "problem", detail, f"run under sudo; or, as administrator, {_UNRESTRICT}")
    remedy = "start it as root with --cap-add=SYS_ADMIN"
    if container == "Kubernetes":
        remedy = "run it as root and add SYS_ADMIN to its securityContext.capabilities"
    return _capture(
        "counters", "problem", f"{detail} in a container ({container})", f"{remedy}; or on the host, {_UNRESTRICT}"
    )


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
    remedy = "; ".join(dict.fromkeys(f"{_HOLDERS[name]}, or stop {name}" for name in held))
    # DCGM usually runs on the host, where a container does not see it.
    clear = "none running that this container can see" if container else "none running"
    detail = f"{', '.join(held)} running: may hold the counters" if held else clear
    yield _capture("other profilers", "problem" if held else "ok", detail, remedy or None)
    # A comm has 15 characters at most.
    daemon = any(name.startswith("nvidia-cuda-mps") for name in running)
    setting = next((name for name in sorted(system.environ) if name.startswith("CUDA_MPS_")), None)
    if daemon or setting:
        detail = "nvidia-cuda-mps-control runs" if daemon else f"{setting} is set"
        remedy = "echo quit | nvidia-cuda-mps-control" if daemon else f"unset {setting}"
        yield _capture("MPS", "problem", f"{detail}: work of other processes may run beside the kernel", remedy)
    else:
        yield _capture("MPS", "ok", "off")


def _read(name: str, status: Status, detail: str, remedy: str | None = None, required: bool = True) -> Check:
    return Check(name, "reading", status, detail, remedy, required)


def _capture(name: str, status: Status, detail: str, remedy: str | None = None) -> Check:
    return Check(name, "capturing", status, detail, remedy)


def _optional(name: str, found: str | None, remedy: str) -> Check:
    detail = f"{found or 'not found'} (optional: builds specimens)"
    return Check(name, "capturing", "ok" if found else "missing", detail, None if found else remedy, False)


def _numbers(version: str) -> Version:
    return tuple(map(int, re.findall(r"\d+", version)))


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _failure(process: subprocess.CompletedProcess[str] | None) -> str:
    if process is None:
        return "it cannot be started"
    if process.returncode < 0:
        return f"killed by signal {-process.returncode}"
    return _last(process.stderr) or _last(process.stdout) or f"exit code {process.returncode}"
