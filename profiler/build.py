"""A CUDA source and an architecture -> a cubin, from the cache where the same text was compiled before.

nvcc compiles, or else NVRTC, which ``profiler.launch`` passes in. Line tables name the source where it lies, so that
``ncu --import-source`` finds it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from profiler import cache
from profiler.errors import MissingToolError, SpecimenError
from profiler.specimen import CudaSource

OPTIONS = ("-lineinfo", "-std=c++17")
TIMEOUT = 600.0
# A cubin is 10-500 kB.
CUBINS = cache.Kind("cubins", 300)
# Written into the key: raise it when the command line changes.
_FORMAT = 1
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_ERRORS = (
    # nvcc and NVRTC; the host compiler, which preprocesses for nvcc.
    re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.+)$"),
    re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.+)$"),
)
_OTHER_ERROR = re.compile(r"\b(?:error|fatal)\b\s*:\s*(?P<text>.+)$", re.IGNORECASE)
# Cubins by name that could not be kept in the cache.
_of_this_process: dict[str, Path] = {}


class Nvrtc(Protocol):
    """NVRTC, as CuPy brings it along."""

    version: str

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        """Return the cubin; ``name`` stands in its line table. Raises CompilerError with the compiler's log."""


class CompilerError(Exception):
    """What a compiler printed when it refused a source."""


class Compiler(NamedTuple):
    """``identity`` tells one version from another; ``compile`` takes (source, architecture, options), gives a cubin."""

    identity: str
    compile: Callable[[Path, str, Sequence[str]], bytes]


def architecture(major: int, minor: int) -> str:
    """Return the name of a compute capability for the compiler, with the features of that very chip from 9.0 on."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def command_line(nvcc: str, source: Path, arch: str, options: Sequence[str], out: Path) -> list[str]:
    """Return the words that make nvcc compile ``source`` to the cubin ``out``."""
    return [nvcc, "-cubin", f"-arch={arch}", *OPTIONS, *options, "-o", str(out), str(source)]


def build(source: CudaSource, arch: str, nvrtc: Nvrtc | None = None) -> Path:
    """Return the cubin of a source for ``arch`` (``sm_90a``).

    Raises SpecimenError, in one line with file, line and the compiler's first message, when it does not compile, and
    MissingToolError when there is no compiler.
    """
    path = source.path.resolve()
    if not path.is_file():
        raise SpecimenError(f"{source.path}: there is no such CUDA source")
    compiler = find_compiler(nvrtc)
    name = f"{path.stem}-{arch}-{_key(path, arch, source.options, compiler.identity)}.cubin"
    kept = cache.place(CUBINS, name)
    if kept is not None and (cache.get(CUBINS, name) or b"")[:4] == b"\x7fELF":
        return kept
    if name in _of_this_process:
        return _of_this_process[name]
    try:
        image = compiler.compile(path, arch, source.options)
    except CompilerError as failure:
        raise SpecimenError(first_error(str(failure), source.path, arch)) from None
    return keep(image, name)


def keep(image: bytes, name: str) -> Path:
    """Write a cubin to the cache, or where that cannot be done to a folder of this process, and return its file."""
    kept = cache.put(CUBINS, name, image)
    if kept is None:
        kept = _folder_of_this_process() / name
        kept.write_bytes(image)
        _of_this_process[name] = kept
    return kept


def find_compiler(nvrtc: Nvrtc | None = None) -> Compiler:
    """Return nvcc where it and its host compiler are at hand, else NVRTC. Raises MissingToolError without either."""
    nvcc = find_nvcc()
    # nvcc has the host's compiler preprocess even what is for the device alone.
    if nvcc is not None and shutil.which("cl" if sys.platform == "win32" else "g++"):
        return Compiler(f"nvcc {_version(nvcc)}", lambda *what: _run_nvcc(nvcc, *what))
    if nvrtc is not None:
        return Compiler(f"nvrtc {nvrtc.version}", lambda *what: _run_nvrtc(nvrtc, *what))
    found = "nvcc is here but not g++, which it needs" if nvcc else "there is no nvcc"
    raise MissingToolError(f"CUDA sources cannot be compiled: {found}; pip install nvidia-cuda-nvcc, and install g++")


def find_nvcc() -> str | None:
    """Return nvcc: of PATH, $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, or of the nvidia-cuda-nvcc wheel."""
    on_path = shutil.which("nvcc")
    if on_path:
        return on_path
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(home) / "bin" for home in homes if home]
    for root in sys.path:
        # The newest toolkit first: cu13 before cu12, whose folder is called cuda_nvcc.
        folders += sorted(Path(root or ".").glob("nvidia/cu*/bin"), reverse=True)
    return next((found for folder in folders if (found := shutil.which("nvcc", path=str(folder)))), None)


@functools.cache
def _version(nvcc: str) -> str:
    try:
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"{nvcc} cannot be started ({error})") from None
    return " ".join(done.stdout.split())


def _run_nvcc(nvcc: str, source: Path, arch: str, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="cyinst-") as folder:
        out = Path(folder) / "code.cubin"
        try:
            done = subprocess.run(
                command_line(nvcc, source, arch, options, out), cwd=source.parent, stdin=subprocess.DEVNULL,
                capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CompilerError(f"error: nvcc did not finish within {TIMEOUT:.0f} s") from None
        if done.returncode != 0 or not out.is_file():
            raise CompilerError(done.stderr + done.stdout or f"error: nvcc ended with {done.returncode}")
        return out.read_bytes()


def _run_nvrtc(nvrtc: Nvrtc, source: Path, arch: str, options: Sequence[str]) -> bytes:
    folders = dict.fromkeys([source.parent, *(path.parent for path in included(source, options))])
    where = [f"--include-path={folder}" for folder in folders]
    text = source.read_text(encoding="utf-8")
    return nvrtc.compile(text, str(source), [f"--gpu-architecture={arch}", *OPTIONS, *where, *options])


def first_error(log: str, source: Path, arch: str) -> str:
    """Return a compiler's first error as one line, with file and line, and how many more there are."""
    lines = [line.strip() for line in log.splitlines()]
    found = [match for line in lines for pattern in _ERRORS if (match := pattern.match(line))]
    if found:
        first = found[0]
        # As the specimen names it: the compiler was given the whole path.
        file = source if Path(first["file"]) == source.resolve() else first["file"]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"{file}:{first['line']}: {first['text']}{more}"
    said = next((match["text"] for line in lines if (match := _OTHER_ERROR.search(line))), None)
    return f"{source}: does not compile for {arch}: {said or next(filter(None, lines), 'the compiler said nothing')}"


def included(source: Path, options: Iterable[str] = ()) -> list[Path]:
    """Return the files that a source includes by ``#include "..."``, directly or not, where they are found."""
    searched = [source.parent / option[2:] for option in options if option.startswith("-I") and option != "-I"]
    found: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        for name in _INCLUDE.findall(file.read_bytes()):
            places = [folder / os.fsdecode(name) for folder in (file.parent, *searched)]
            path = next((place.resolve() for place in places if place.is_file()), None)
            if path is not None and path not in found:
                found[path] = None
                waiting.append(path)
    return list(found)


def _key(source: Path, arch: str, options: Sequence[str], compiler: str) -> str:
    # The path too: it stands in the line table.
    key = hashlib.sha256(repr((_FORMAT, arch, tuple(options), compiler, str(source))).encode())
    for path in (source, *included(source, options)):
        key.update(str(path).encode() + hashlib.sha256(path.read_bytes()).digest())
    return key.hexdigest()[:32]


@functools.cache
def _folder_of_this_process() -> Path:
    """Where cubins go when the cache cannot be written: it is gone when the process ends."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="cyinst-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
