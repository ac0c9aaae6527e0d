"""Every obstacle staged on a machine that does not exist; the real command on the one that does."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from dashboards.terminal.doctor import draw, markdown
from profiler import doctor
from profiler.commands.doctor import command
from profiler.doctor import Check, Diagnosis, System, examine
from profiler.errors import MissingToolError

SITE = "/venv/lib/python3.12/site-packages"
NVDISASM = f"{SITE}/nvidia/cu13/bin/nvdisasm"
ALL_CAPS, NO_CAPS, PERFMON = "000001ffffffffff", "0000000000000000", f"{1 << 38:016x}"
ADMIN_ONLY = 'ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nTemporaryFilePath: ""\n'

Answer = str | subprocess.CompletedProcess[str] | None


def ncu_version(version: str) -> str:
    return (
        "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
        f"Version {version}.0 (build 36398880) (public-release)\n"
    )


def failed(code: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, stdout, stderr)


@dataclass(frozen=True)
class Staged(System):
    """A healthy machine with one H200, an ordinary user and open counters; each test breaks something."""

    environ: Mapping[str, str] = field(default_factory=dict)
    platform: str = "linux"
    python: tuple[int, ...] = (3, 12, 1)
    executable: str = "/venv/bin/python"
    path: tuple[str, ...] = ("/work", SITE)
    euid: int | None = 1000
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ("ncu-report>=2025.3", "pandas>=2.1", "protobuf>=5.26", "pyarrow>=15; extra == 'test'")

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        answer = self.answers.get(" ".join(command), self.answers.get(command[0]))
        return failed(0, answer) if isinstance(answer, str) else answer

    def read_text(self, path: str) -> str | None:
        return self.files.get(path)

    def which(self, name: str) -> str | None:
        return self.programs.get(name)

    def glob(self, pattern: str) -> list[str]:
        known = {*self.files, *self.answers}
        return sorted(path for path in known if fnmatch.fnmatchcase(path, pattern))

    def package(self, distribution: str) -> str | None:
        return self.packages.get(distribution)

    def requirements(self) -> Sequence[str]:
        return self.needs


HEALTHY = Staged(
    files={
        "/proc/version": "Linux version 6.8.0-60-generic (buildd@lcy02) (gcc 13.3.0)",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n",
        "/proc/self/status": f"Name:\tpython\nCapEff:\t{NO_CAPS}\n",
        "/proc/self/uid_map": "         0          0 4294967295\n",
        "/proc/1/comm": "systemd\n",
    },
    programs={
        "ncu": "/usr/local/cuda/bin/ncu", "nvcc": "/usr/local/cuda/bin/nvcc", "nvidia-smi": "/usr/bin/nvidia-smi",
    },
    answers={
        "/usr/local/cuda/bin/ncu": ncu_version("2025.3.1"),
        "/usr/bin/nvidia-smi": "NVIDIA H200, 580.65.06, 9.0, Disabled\n",
        "/usr/local/cuda/bin/nvcc": "nvcc: NVIDIA (R) Cuda compiler driver\nrelease 13.0, V13.0.88\n",
        "/venv/bin/python": "",
        NVDISASM: "nvdisasm: NVIDIA (R) CUDA disassembler\nCuda compilation tools, release 13.0, V13.0.85\n",
    },
    packages={
        "cyinst": "0.1.0", "ncu_report": "2026.3.1", "pandas": "2.3.0", "rich": "14.0.0", "nvtx": "0.2.13",
        "protobuf": "6.31.1", "pyarrow": "20.0.0", "nvidia-cuda-nvdisasm": "13.0.85", "cupy-cuda13x": "14.0.0",
    },
)  # fmt: skip


def staged(
    *,
    files: Mapping[str, str | None] | None = None,
    programs: Mapping[str, str | None] | None = None,
    answers: Mapping[str, Answer] | None = None,
    packages: Mapping[str, str | None] | None = None,
    base: Staged = HEALTHY,
    **more: Any,
) -> Staged:
    """The healthy machine with changes; None takes a file, a program or a package away."""
    changed: dict[str, Any] = dict(more)
    for name, changes in (("files", files), ("programs", programs), ("packages", packages)):
        merged = {**getattr(base, name), **(changes or {})}
        changed[name] = {key: value for key, value in merged.items() if value is not None}
    return replace(base, answers={**base.answers, **(answers or {})}, **changed)


def find(diagnosis: Diagnosis, name: str) -> Check:
    (check,) = [c for c in diagnosis.checks if c.name == name]
    return check


def diagnose(system: System, name: str) -> Check:
    return find(examine(system), name)


def test_a_healthy_machine_has_nothing_to_remedy() -> None:
    diagnosis = examine(HEALTHY)
    assert [c for c in diagnosis.checks if c.status != "ok" or c.remedy] == []
    assert diagnosis.can_read
    assert diagnosis.can_capture
    assert find(diagnosis, "ncu").detail == "2025.3.1.0, /usr/local/cuda/bin/ncu"
    assert find(diagnosis, "GPU").detail == "1 x NVIDIA H200 (9.0)"
    assert find(diagnosis, "nvdisasm").detail == f"13.0.85, {NVDISASM}"


def test_the_document_is_versioned_and_plain() -> None:
    document = examine(HEALTHY).to_dict()
    assert list(document) == ["schema", "can_read", "can_capture", "checks"]
    assert document["schema"] == "cyinst.doctor/1"
    assert set(document["checks"][0]) == {"name", "group", "status", "detail", "remedy", "required"}
    assert json.loads(json.dumps(document)) == document


# Counter permission


def restricted(caps: str = NO_CAPS, files: Mapping[str, str | None] | None = None, **more: Any) -> Staged:
    shut = {"/proc/driver/nvidia/params": ADMIN_ONLY, "/proc/self/status": f"CapEff:\t{caps}\n"}
    return staged(files={**shut, **(files or {})}, **more)


def test_counters_closed_to_an_ordinary_user() -> None:
    diagnosis = examine(restricted())
    check = find(diagnosis, "counters")
    assert check.status == "problem"
    assert "ERR_NVGPUCTRPERM" in check.detail
    assert "ordinary user" in check.detail
    assert check.remedy is not None
    assert check.remedy.startswith("run under sudo")
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in check.remedy
    assert diagnosis.can_read
    assert not diagnosis.can_capture


@pytest.mark.parametrize(
    ("marks", "kind", "way"),
    [
        ({"files": {"/.dockerenv": ""}}, "Docker", "--cap-add=SYS_ADMIN"),
        ({"files": {"/run/.containerenv": ""}}, "Podman", "--cap-add=SYS_ADMIN"),
        ({"files": {"/proc/1/cgroup": "0::/system.slice/containerd.service"}}, "containerd", "--cap-add=SYS_ADMIN"),
        ({"environ": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}, "Kubernetes", "securityContext"),
    ],
)
def test_counters_closed_to_root_of_a_container(marks: dict[str, Any], kind: str, way: str) -> None:
    # Docker's default capabilities: root, without CAP_SYS_ADMIN.
    check = diagnose(restricted("00000000a80425fb", euid=0, **marks), "counters")
    assert check.status == "problem"
    assert "root without the host's CAP_SYS_ADMIN" in check.detail
    assert f"in a container ({kind})" in check.detail
    assert check.remedy is not None
    assert way in check.remedy
    assert "on the host" in check.remedy


@pytest.mark.parametrize(
    ("system", "status"),
    [
        (restricted(ALL_CAPS, euid=0), "ok"),
        (restricted(ALL_CAPS, {"/.dockerenv": ""}, euid=0), "ok"),
        (restricted(ALL_CAPS, {"/proc/self/uid_map": "0 1000 1"}, euid=0), "problem"),
        (restricted(files={"/proc/self/status": None}, euid=0), "ok"),
        (restricted(PERFMON), "ok"),
        (restricted(PERFMON, answers={"/usr/bin/nvidia-smi": "NVIDIA A100, 550.54.15, 8.0, Disabled\n"}), "problem"),
        (restricted(files={"/proc/driver/nvidia/params": "RestrictProfilingToAdminUsers: 1"}), "problem"),
        (restricted(files={"/proc/driver/nvidia/params": "NVreg_RestrictProfilingToAdminUsers: 0"}), "ok"),
    ],
    ids=["root", "container with the capability", "root of a user namespace", "root, capabilities hidden", "perfmon",
         "perfmon with an old driver", "older name", "oldest name, open"],
)  # fmt: skip
def test_who_may_read_closed_counters(system: Staged, status: str) -> None:
    assert diagnose(system, "counters").status == status


def test_counters_of_which_nothing_is_said_are_unknown() -> None:
    diagnosis = examine(staged(files={"/proc/driver/nvidia/params": None}))
    assert find(diagnosis, "counters").status == "unknown"
    assert "ERR_NVGPUCTRPERM" in (find(diagnosis, "counters").remedy or "")


@pytest.mark.parametrize("windows", [False, True])
def test_on_windows_and_wsl_the_control_panel_decides(windows: bool) -> None:
    kernel = "Linux version 5.15.167.4-microsoft-standard-WSL2"
    system = staged(platform="win32") if windows else staged(files={"/proc/version": kernel})
    check = diagnose(system, "counters")
    assert check.status == "unknown"
    assert "NVIDIA Control Panel" in (check.remedy or "")
    assert check.detail.startswith("WSL") != windows


# Other holders of the counters


@pytest.mark.parametrize(
    ("name", "way"),
    [("nv-hostengine", "dcgmi profile --pause"), ("dcgm-exporter", "dcgmi profile --pause"), ("nsys", "wait for")],
)
def test_another_tool_may_hold_the_counters(name: str, way: str) -> None:
    diagnosis = examine(staged(files={"/proc/4321/comm": f"{name}\n"}))
    check = find(diagnosis, "other profilers")
    assert check.status == "problem"
    assert name in check.detail
    assert way in (check.remedy or "")
    assert name in (check.remedy or "")
    assert not diagnosis.can_capture


def test_a_container_does_not_vouch_for_its_host() -> None:
    check = diagnose(staged(files={"/.dockerenv": ""}), "other profilers")
    assert (check.status, check.detail) == ("ok", "none running that this container can see")


@pytest.mark.parametrize(
    "change", [{"files": {"/proc/77/comm": "nvidia-cuda-mps\n"}}, {"environ": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}}]
)
def test_mps(change: dict[str, Any]) -> None:
    check = diagnose(staged(**change), "MPS")
    assert check.status == "problem"
    assert "other processes" in check.detail


# GPUs and driver


def gpus(text: str, **more: Any) -> Staged:
    return staged(answers={"/usr/bin/nvidia-smi": text}, **more)


def test_mig() -> None:
    rows = "NVIDIA H200, 580.65.06, 9.0, Enabled\nNVIDIA H200, 580.65.06, 9.0, Disabled\n"
    check = diagnose(gpus(rows), "MIG")
    assert check.status == "problem"
    assert check.detail.startswith("on for 1 of 2")


@pytest.mark.parametrize(
    ("rows", "status", "detail"),
    [
        ("NVIDIA H200, 580.65.06, 9.0, Disabled\n" * 8, "ok", "8 x NVIDIA H200 (9.0)"),
        ("NVIDIA RTX 4090, 580.65.06, 8.9, [N/A]\nNVIDIA T4, 580.65.06, 7.5, [N/A]\n", "ok",
         "1 x NVIDIA RTX 4090 (8.9), 1 x NVIDIA T4 (7.5)"),
        ("Tesla P100, 580.65.06, 6.0, [N/A]\n", "problem",
         "1 x Tesla P100 (6.0): current ncu supports 7.0 and newer"),
        ("Tesla V100, 580.65.06, 7.0, [N/A]\n", "problem",
         "1 x Tesla V100 (7.0): ncu 2025.3.1.0 may not support Volta"),
    ],
)  # fmt: skip
def test_gpus(rows: str, status: str, detail: str) -> None:
    check = diagnose(gpus(rows), "GPU")
    assert (check.status, check.detail) == (status, detail)


def test_an_old_nvidia_smi_is_asked_for_less() -> None:
    ask = "/usr/bin/nvidia-smi --query-gpu=name,driver_version --format=csv,noheader"
    refusal = failed(2, 'Field "compute_cap" is not a valid field to query.\n')
    diagnosis = examine(staged(answers={"/usr/bin/nvidia-smi": refusal, ask: "Tesla T4, 418.87.01\n"}))
    assert find(diagnosis, "driver").detail == "418.87.01"
    assert find(diagnosis, "GPU").detail == "1 x Tesla T4"


@pytest.mark.parametrize(
    ("ncu", "driver", "status", "remedy"),
    [
        ("2025.3.1", "570.172.08", "problem", "update the driver to 580 or newer, or use ncu 2025.1 (CUDA 12.8)"),
        ("2025.3.1", "535.161.07", "problem", "update the driver to 580 or newer, or use ncu older than 2024.1"),
        ("2024.3.2", "550.54.15", "problem", "update the driver to 560 or newer, or use ncu 2024.1 (CUDA 12.4)"),
        ("2025.2.1", "580.65.06", "ok", None),
        ("2026.3.1", "580.159.04", "ok", None),
        ("2022.4.1", "525.60.13", "unknown", None),
    ],
)
def test_a_driver_older_than_ncu(ncu: str, driver: str, status: str, remedy: str | None) -> None:
    rows = {"/usr/local/cuda/bin/ncu": ncu_version(ncu), "/usr/bin/nvidia-smi": f"NVIDIA A100, {driver}, 8.0, [N/A]\n"}
    check = diagnose(staged(answers=rows), "driver for ncu")
    assert (check.status, check.remedy) == (status, remedy)
    assert ("may be too old" in check.detail) == (status == "problem")


def no_gpu(**more: Any) -> Staged:
    away: dict[str, Any] = {"files": {"/proc/driver/nvidia/version": None, **more.pop("files", {})}}
    return staged(programs={"nvidia-smi": None}, **away, **more)


@pytest.mark.parametrize("system", [no_gpu(), gpus("No devices were found\n")])
def test_without_a_gpu_what_depends_on_it_is_unknown(system: Staged) -> None:
    diagnosis = examine(system)
    assert find(diagnosis, "GPU").status == "missing"
    for name in ("driver for ncu", "MIG", "counters", "other profilers", "MPS"):
        assert (find(diagnosis, name).status, find(diagnosis, name).detail) == ("unknown", "no GPU")
    assert diagnosis.can_read
    assert not diagnosis.can_capture


def test_no_driver() -> None:
    assert diagnose(no_gpu(), "driver").status == "missing"
    in_container = diagnose(no_gpu(files={"/.dockerenv": ""}), "driver")
    assert in_container.remedy == "start the container with --gpus all"


def test_a_driver_without_nvidia_smi() -> None:
    diagnosis = examine(staged(programs={"nvidia-smi": None}, files={"/dev/nvidia0": "", "/dev/nvidiactl": ""}))
    assert find(diagnosis, "driver").status == "problem"
    assert find(diagnosis, "driver").detail == "580.65.06, without nvidia-smi"
    assert find(diagnosis, "GPU").detail == "1 x NVIDIA GPU"
    assert find(diagnosis, "counters").status == "ok"


def test_nvidia_smi_fails() -> None:
    mismatch = failed(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.82\n")
    check = diagnose(staged(answers={"/usr/bin/nvidia-smi": mismatch}), "driver")
    assert check.status == "problem"
    assert "nvidia-smi fails" in check.detail


# ncu


def test_ncu_off_path_takes_the_newest() -> None:
    old, new = "/usr/local/cuda-12.8/bin/ncu", "/opt/nvidia/nsight-compute/2025.3.1/ncu"
    found: dict[str, Answer] = {
        old: ncu_version("2025.1.0"),
        new: ncu_version("2025.3.1"),
        "/usr/lib/nsight-compute/ncu": failed(1),
    }
    diagnosis = examine(staged(programs={"ncu": None}, answers={"/usr/local/cuda/bin/ncu": None, **found}))
    check = find(diagnosis, "ncu")
    assert check.status == "problem"
    assert check.detail == f"2025.3.1.0, {new}, is not on PATH"
    assert check.remedy == 'export PATH="/opt/nvidia/nsight-compute/2025.3.1:$PATH"'
    assert find(diagnosis, "driver for ncu").status == "ok"


def test_ncu_of_windows() -> None:
    batch = r"C:\Program Files\NVIDIA Corporation\Nsight Compute 2025.3.1\ncu.bat"
    answers: dict[str, Answer] = {"/usr/local/cuda/bin/ncu": None, batch: ncu_version("2025.3.1")}
    check = diagnose(staged(platform="win32", programs={"ncu": None}, answers=answers), "ncu")
    assert check.remedy == r'set "PATH=C:\Program Files\NVIDIA Corporation\Nsight Compute 2025.3.1;%PATH%"'


@pytest.mark.parametrize("answer", [None, failed(124, "", "no answer within 10 s"), "17.1.14\n"])
def test_ncu_missing_or_another_program_of_that_name(answer: Answer) -> None:
    diagnosis = examine(staged(answers={"/usr/local/cuda/bin/ncu": answer}))
    check = find(diagnosis, "ncu")
    assert check.status == "missing"
    assert "/usr/local/cuda/bin/ncu does not answer as Nsight Compute" in check.detail
    assert (find(diagnosis, "driver for ncu").status, find(diagnosis, "driver for ncu").detail) == ("unknown", "no ncu")
    assert diagnosis.can_read
    assert not diagnosis.can_capture


# Reading


@pytest.mark.parametrize(
    ("system", "name", "status", "told"),
    [
        (staged(packages={"ncu_report": None}, answers={"/venv/bin/python": failed(1)}), "ncu_report", "missing",
         "not installed"),
        (staged(answers={"/venv/bin/python": failed(1, "", "Traceback\nImportError: GLIBC_2.34 not found\n")}),
         "ncu_report", "problem", "GLIBC_2.34"),
        (staged(answers={"/venv/bin/python": failed(-11)}), "ncu_report", "problem", "killed by signal 11"),
        (staged(answers={"/venv/bin/python": failed(124, "", "no answer within 10 s")}), "ncu_report", "problem",
         "no answer within 10 s"),
        (staged(packages={"ncu_report": "2024.3.0"}), "ncu_report", "problem", "older than 2025.3"),
        (staged(packages={"nvidia-cuda-nvdisasm": None}, answers={NVDISASM: None}), "nvdisasm", "missing", "not found"),
        (staged(answers={NVDISASM: None}), "nvdisasm", "problem", "13.0.85"),
        (staged(packages={"pandas": None}), "pandas", "missing", "not installed"),
        (staged(packages={"protobuf": "4.25.8"}), "protobuf", "problem", "older than 5.26"),
        (staged(python=(3, 10, 4)), "Python", "problem", "3.10.4"),
    ],
)  # fmt: skip
def test_reading_is_broken(system: Staged, name: str, status: str, told: str) -> None:
    diagnosis = examine(system)
    assert [c.name for c in diagnosis.obstacles("reading")] == [name]
    check = find(diagnosis, name)
    assert check.status == status
    assert told in check.detail
    assert check.remedy
    assert not diagnosis.can_read
    assert diagnosis.can_capture


def test_reading_works_with_what_nsight_compute_and_cuda_bring_along() -> None:
    cuda = {"/usr/local/cuda/bin/nvdisasm": HEALTHY.answers[NVDISASM], NVDISASM: None}
    system = staged(
        packages={"ncu_report": None, "nvidia-cuda-nvdisasm": None}, answers=cuda,
        programs={"nvdisasm": "/usr/local/cuda/bin/nvdisasm"}, needs=(),
    )  # fmt: skip
    assert examine(system).can_read
    assert diagnose(system, "ncu_report").detail == "imports, not installed by pip"


def test_optional_things_are_named_but_fail_nothing() -> None:
    gone: dict[str, str | None] = {"pyarrow": None, "cupy-cuda13x": None}
    diagnosis = examine(staged(packages=gone, programs={"nvcc": None}, answers={"/usr/local/cuda/bin/nvcc": None}))
    assert {c.name for c in diagnosis.checks if c.status == "missing"} == {"pyarrow", "nvcc", "CuPy"}
    assert find(diagnosis, "pyarrow").remedy == "pip install 'cyinst[parquet]'"
    assert diagnosis.can_read
    assert diagnosis.can_capture


# The real machine, the drawing, the command


def test_a_tool_that_cannot_start_or_does_not_end_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert System().run(["/nonexistent/tool", "--version"]) is None
    assert System().read_text("/nonexistent/file") is None
    assert System().package("no-such-distribution-here") is None

    def never_ends(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("ncu", doctor.TIMEOUT)

    monkeypatch.setattr(subprocess, "run", never_ends)
    answer = System().run(["ncu", "--version"])
    assert answer is not None
    assert (answer.returncode, answer.stderr) == (124, "no answer within 10 s")


BROKEN = examine(
    restricted(
        files={"/.dockerenv": "", "/proc/9/comm": "nv-hostengine", "/proc/10/comm": "nvidia-cuda-mps"},
        packages={"pandas": None, "pyarrow": None}, programs={"ncu": None},
        answers={
            "/usr/local/cuda/bin/ncu": None,
            "/opt/nvidia/a-folder-with-a-very-long-name-that-must-be-folded/nsight-compute/2025.3.1/ncu": None,
            "/opt/nvidia/nsight-compute/2025.3.1/ncu": ncu_version("2025.3.1"),
            "/usr/bin/nvidia-smi": "NVIDIA H200, 570.10, 9.0, Enabled\n",
        },
    )
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 60])
def test_the_drawing_fits_and_reads_without_colour(width: int) -> None:
    console = Console(width=width, color_system=None, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(draw(BROKEN))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for words in ("Reading reports: 1 obstacle", "missing pandas", "problem counters", "ok nvdisasm", "-> pip install"):
        assert words in text
    assert "pip install 'cyinst[parquet]'" in text


def test_markdown_keeps_its_columns() -> None:
    rows = [line for line in markdown(BROKEN).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}


@pytest.mark.parametrize(
    ("system", "options", "code"),
    [
        (HEALTHY, [], None),
        (HEALTHY, ["--capture"], None),
        (no_gpu(), [], None),
        (no_gpu(), ["--capture"], 6),
        (restricted(), ["--capture", "--format", "markdown"], 6),
        (staged(packages={"pandas": None}), ["--format", "json"], 6),
    ],
)
def test_the_exit_code(system: Staged, options: list[str], code: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: examine(system))
    result = CliRunner().invoke(command, options)
    assert result.output
    if code is None:
        assert result.exception is None
    else:
        assert isinstance(result.exception, MissingToolError)
        assert result.exception.exit_code == code


def run_command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profiler.cli", "doctor", *options],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip


def test_the_real_command_in_json() -> None:
    done = run_command("--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "cyinst.doctor/1"
    assert document["can_read"] is True
    assert {c["group"] for c in document["checks"]} == {"reading", "capturing"}
    assert {c["status"] for c in document["checks"]} <= {"ok", "missing", "problem", "unknown"}


def test_the_real_table_fits_80_columns() -> None:
    done = run_command()
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Reading reports: ready" in done.stdout
