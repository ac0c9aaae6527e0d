"""Kernels of a specimen on the host: ``EmulatedBench`` stands in for a GPU, so that ``verify`` runs without one.

A block's threads are fibers (tests/emulator). The first launch of a kernel copies asynchronously at once and goes
through threads in order, the next ones copy as late as they may and in a shuffled order: what differs is a race.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from profiler.launch import Bench
from profiler.specimen import CudaSource

FOLDER = Path(__file__).resolve().parent / "emulator"
# Inline PTX -> what does the same here.
PTX = (
    (re.compile(r'asm\("mma\.sync\.aligned\.m16n8k16[^;]*;"[^;]*;'), "mma_16x8x16(dot, a, b);"),
    (re.compile(r'asm volatile\("mov\.u32 %0, %%tid\.x;"[^;]*;'), "tid = threadIdx.x;"),
)
ENTRY = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s*(\w+)\(([^)]*)\)')
OPTIONS = ("-std=c++17", "-O1", "-w", "-fPIC", "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-fno-strict-aliasing")


def run_gxx(*words: str) -> None:
    done = subprocess.run(["g++", *OPTIONS, f"-I{FOLDER}", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@cache
def fibers() -> str:
    """What all libraries share, compiled once."""
    out = Path(tempfile.mkdtemp(prefix="cyinst-tests-")) / "fibers.o"
    atexit.register(shutil.rmtree, out.parent, ignore_errors=True)
    run_gxx("-O2", "-c", str(FOLDER / "fibers.cpp"), "-o", str(out))
    return str(out)


def compile_for_host(source: Path, folder: Path) -> ctypes.CDLL:
    """Compile a rung, with the headers beside it, to a library in ``folder``."""
    (folder / "rung").mkdir(parents=True)
    (folder / "formats").mkdir()
    (folder / "formats" / "ptx.cuh").write_text('#include "cuda.h"\n')
    for path in (*source.parent.glob("*.cuh"), source):
        text = path.read_text()
        for pattern, host in PTX:
            text = pattern.sub(host, text)
        text = re.sub(r"extern __shared__ uint4 (\w+)\[\];", r"static uint4 \1[8192];", text)
        assert "asm" not in text, path
        (folder / "rung" / path.name).write_text(text)
    calls = ""
    for name, parameters in ENTRY.findall(source.read_text()):
        names = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
        calls += (
            f'extern "C" const char* run_{name}'
            f"(const int* grid, int threads, bool late, unsigned shuffle, {parameters}) {{"
            f" return run_grid(grid, threads, late, shuffle, [=] {{ {name}({names}); }}); }}\n"
        )
    (folder / "calls.cpp").write_text(
        f'#include "rung/{source.name}"\n#include <functional>\n'
        "const char* run_grid(const int*, int, bool, unsigned, std::function<void()>);\n" + calls
    )
    library = str(folder / "library.so")
    run_gxx("-shared", f"-I{folder}", str(folder / "calls.cpp"), fibers(), "-o", library)
    return ctypes.CDLL(library)


class HostDevice:
    """The arrays of a Bench, as NumPy arrays on the host, 64 bytes aligned."""

    name, arch, nvrtc = "emulated on the host", "host", None
    multiprocessors = 4

    def upload(self, array: np.ndarray) -> np.ndarray:
        made = self.empty(array.shape, str(array.dtype))
        made[...] = array
        return made

    def download(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def empty(self, sizes: tuple[int, ...], dtype: str) -> np.ndarray:
        size = int(np.prod(sizes)) * np.dtype(dtype).itemsize
        memory = np.empty(size + 64, np.uint8)
        first = -memory.ctypes.data % 64
        return memory[first : first + size].view(dtype).reshape(sizes)

    def fill(self, array: np.ndarray, byte: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = byte

    def used_bytes(self) -> int:
        return 0

    def synchronise(self) -> None:
        pass

    def alive(self) -> bool:
        return True

    def load(self, cubin: Path, entry: str) -> Any:
        raise AssertionError("nothing is compiled for a GPU here")


class EmulatedBench(Bench):
    """A bench whose kernels were compiled by ``library(source path)``."""

    def __init__(self, library: Callable[[Path], ctypes.CDLL]) -> None:
        super().__init__(HostDevice())
        self._library = library

    def function(self, source: CudaSource, entry: str) -> Any:
        library, launches = self._library(source.path), 0

        def launch(grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int) -> None:
            nonlocal launches
            arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
            places = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
            library.set_readable(len(arrays), places, (ctypes.c_size_t * len(arrays))(*(a.nbytes for a in arrays)))
            run = library[f"run_{entry}"]
            run.restype = ctypes.c_char_p
            words = [ctypes.c_void_p(a.ctypes.data if isinstance(a, np.ndarray) else 0) if not isinstance(a, np.int32)
                     else ctypes.c_int(int(a)) for a in args]  # fmt: skip
            sizes = (ctypes.c_int * 2)(*(*grid, 1)[:2])
            fault = run(sizes, block[0], ctypes.c_bool(launches % 2 == 1), ctypes.c_uint(launches), *words)
            launches += 1
            if fault:
                raise RuntimeError(fault.decode())

        return launch
