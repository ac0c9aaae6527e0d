"""NVIDIA's disassembler: cubin + functions -> its listing with source lines, from a cache where it was asked before.

The listing is what ``nvdisasm -c -gi -fun ...`` prints. Starting nvdisasm costs half a second however small the
request, so listings are kept, compressed, in the user's cache folder.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiler import cache
from profiler.errors import MissingToolError

TIMEOUT = 60.0
REMEDY = "pip install nvidia-cuda-nvdisasm"
# A listing is 10-100 kB compressed.
LISTINGS = cache.Kind("nvdisasm", 500)
# Written into the key: raise it when the command line or the kept text changes.
_FORMAT = 1
# nvdisasm's words for an architecture that it does not know or no longer knows.
_REFUSED = re.compile(r"is deprecated|not supported|unsupported|unknown architecture", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tool:
    """A disassembler. ``identity`` names its version without starting it: the wheel's version, or size and time."""

    path: str
    identity: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What nvdisasm printed; ``problem`` says why ``text`` is empty, or what it lacks."""

    text: str
    problem: str | None = None


def wheel_places(roots: Iterable[str], matches: Callable[[str], Iterable[str]] = glob.glob) -> list[str]:
    """Return the nvdisasm programs that wheels put beside the packages in ``roots`` (by default of this machine)."""
    folders = [Path(root or ".") / "nvidia" / "*" / "bin" for root in roots]
    names = ("nvdisasm", "nvdisasm.exe", "*/nvdisasm.exe")
    return [path for folder in folders for name in names for path in matches(str(folder / name))]


def find_tools(roots: Iterable[str] | None = None) -> list[Tool]:
    """Return the disassemblers at hand, those of wheels before the one on PATH; nothing is started."""
    places = wheel_places(sys.path if roots is None else roots)
    # cu13 before cu12, whose folder is called cuda_nvdisasm.
    places.sort(key=lambda path: [int(n) for n in re.findall(r"[\\/]cu(\d+)[\\/]", path)] or [0], reverse=True)
    on_path = shutil.which("nvdisasm")
    found = []
    for path in dict.fromkeys([*places, *([on_path] if on_path else [])]):
        with suppress(OSError):
            status = os.stat(path)
            found.append(Tool(path, _wheel_version(path) or f"{status.st_size}-{status.st_mtime_ns}"))
    return found


def _wheel_version(path: str) -> str | None:
    """Return the version in the name of the wheel's metadata folder, beside the ``nvidia`` folder of a program."""
    site = next((parent.parent for parent in Path(path).parents if parent.name == "nvidia"), None)
    if site is None:
        return None
    infos = sorted(site.glob("nvidia_cuda_nvdisasm*.dist-info"))
    # Two wheels in one folder (CUDA 12 and 13): which program is whose, the names do not say.
    return infos[0].name.removesuffix(".dist-info") if len(infos) == 1 else None


def disassemble(image: bytes, symbols: Sequence[int], *, timeout: float = TIMEOUT) -> Listing:
    """Return the listing of the functions of a cubin whose symbols have these indices.

    A refusal (an architecture that this nvdisasm does not know, a damaged image, no end within ``timeout`` seconds) is
    a ``problem``. Raises MissingToolError when there is no nvdisasm.
    """
    tools = find_tools()
    if not tools:
        raise MissingToolError(f"disassembling needs NVIDIA's nvdisasm, which is not installed: {REMEDY}")
    wanted = sorted(set(symbols))
    first: Listing | None = None
    for tool in tools:
        key = _key(image, wanted, tool)
        kept = _recall(key)
        if kept is not None:
            return Listing(kept)
        listing = _run(tool, image, wanted, timeout)
        if listing.text:
            if listing.problem is None:
                cache.put(LISTINGS, key, gzip.compress(listing.text.encode(), compresslevel=6, mtime=0))
            return listing
        first = first or listing
        # An older toolkit's nvdisasm may still know what a new one has dropped; anything else it would refuse as well.
        if not _REFUSED.search(listing.problem or ""):
            break
    assert first is not None
    return first


def _run(tool: Tool, image: bytes, symbols: Sequence[int], timeout: float) -> Listing:
    which = ["-fun", ",".join(map(str, symbols))] if symbols else []
    with tempfile.TemporaryDirectory(prefix="cyinst-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(image)
        why = ""
        # Damaged line tables make -gi fail, not the code.
        for options, lacks in ((["-c", "-gi"], None), (["-c"], "its line table cannot be read")):
            try:
                done = subprocess.run(
                    [tool.path, *options, *which, str(path)], stdin=subprocess.DEVNULL, capture_output=True,
                    encoding="utf-8", errors="replace", timeout=timeout, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return Listing("", f"nvdisasm did not finish within {timeout:.0f} s")
            except OSError as error:
                return Listing("", f"nvdisasm cannot be started ({error.strerror}): {REMEDY}")
            if done.returncode == 0 and ".section" in done.stdout:
                return Listing(done.stdout, lacks and f"no source lines: {lacks}")
            why = why or _reason(done)
            if _REFUSED.search(why):
                break
    return Listing("", f"nvdisasm cannot disassemble it: {why}")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The first error that nvdisasm printed, without its prefix; its warnings are no reason."""
    lines = [line.strip() for line in done.stderr.splitlines()]
    said = next((line for line in lines if line and not line.startswith("nvdisasm warning")), None)
    if said is not None:
        return re.sub(r"^nvdisasm \w+\s*:\s*", "", said)[:200].rstrip(".")
    how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return f"{how}, without a word"


def _key(image: bytes, symbols: Sequence[int], tool: Tool) -> str:
    key = hashlib.sha256(f"{_FORMAT} {tool.identity} {' '.join(map(str, symbols))} ".encode())
    key.update(hashlib.sha256(image).digest())
    return f"{key.hexdigest()}.gz"


def _recall(key: str) -> str | None:
    """Return a kept listing; None when there is none, or it is cut off or altered (gzip carries a checksum)."""
    data = cache.get(LISTINGS, key)
    if data is not None:
        with suppress(OSError, EOFError, zlib.error, UnicodeDecodeError):
            text = gzip.decompress(data).decode()
            if ".section" in text:
                return text
    return None
