"""The q4_K kernels on the host: tests/emulated.py, with ldmatrix, products over 32 k, options, arrays with pointers."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
from emulated import ENTRY, EmulatedBench, HostDevice, fibers, run_gxx

from profiler.specimen import CudaSource

# In place of kernels/formats/ptx.cuh. Addresses of shared memory are counted from its beginning. Fragments are those
# that the PTX ISA documents for ldmatrix and for mma.m16n8k32 of signed bytes.
HEADER = r"""
#define shared_address host_address
#include "cuda.h"
#undef shared_address
#define __align__(bytes) __attribute__((aligned(bytes)))

inline float2 make_float2(float x, float y) { return {x, y}; }
alignas(128) static unsigned char shared[1 << 17];
inline unsigned shared_address(const void* p) { return static_cast<const unsigned char*>(p) - shared; }
inline void copy_async_16(unsigned to, const void* from, bool valid) { copy_async_16(shared + to, from, valid); }
inline void copy_async_4(unsigned to, const void* from, bool valid) { copy_async_4(shared + to, from, valid); }

inline void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  static const unsigned char* lines[1024];
  const int thread = threadIdx.x, warp = thread & ~31, lane = thread & 31;
  lines[thread] = shared + (address & ~15u);
  wait_for(Wait::kWarp);
  for (int i = 0; i < 4; i++) std::memcpy(&r[i], lines[warp + 8 * i + lane / 4] + lane % 4 * 4, 4);
  wait_for(Wait::kWarp);
}

inline void mma_s8s8(int (&dot)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static signed char left[32][16][32], right[32][8][32];
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  for (int i = 0; i < 4; i++) std::memcpy(&left[warp][g + i % 2 * 8][i / 2 * 16 + t * 4], &a[i], 4);
  std::memcpy(&right[warp][g][t * 4], &b0, 4);
  std::memcpy(&right[warp][g][16 + t * 4], &b1, 4);
  wait_for(Wait::kWarp);
  for (int i = 0; i < 4; i++) {
    const signed char *x = left[warp][g + i / 2 * 8], *y = right[warp][t * 2 + i % 2];
    dot[i] = 0;
    for (int k = 0; k < 32; k++) dot[i] += x[k] * y[k];
  }
  wait_for(Wait::kWarp);
}
"""
HOST = (
    ('asm("mov.u32 %0, %%laneid;" : "=r"(lane));', "lane = threadIdx.x % 32;"),
    ("extern __shared__ __align__(128) u8 shared[];", ""),
)


def compile_for_host(source: CudaSource, folder: Path) -> ctypes.CDLL:
    """Compile a source with its options to a library in ``folder``."""
    (folder / "formats").mkdir(parents=True)
    (folder / "formats" / "ptx.cuh").write_text(HEADER)
    (folder / "rung").mkdir()
    texts = {path.name: path.read_text() for path in (*source.path.parent.glob("*.cuh"), source.path)}
    (entry,) = source.entries
    for name, text in texts.items():
        for device, host in HOST:
            text = text.replace(device, host)
        texts[name] = text.replace("NAME(KD)(", f"{entry}(")
        (folder / "rung" / name).write_text(texts[name])
    ((found, parameters),) = ENTRY.findall(re.sub(r"__launch_bounds__\([^)]*\)\s*", "__launch_bounds__(0) ",
                                                  texts[source.path.name]))  # fmt: skip
    assert found == entry
    names = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    (folder / "calls.cpp").write_text(
        f'#include "rung/{source.path.name}"\n#include <functional>\n'
        "const char* run_grid(const int*, int, bool, unsigned, std::function<void()>);\n"
        f'extern "C" const char* run_{entry}'
        f"(const int* grid, int threads, bool late, unsigned shuffle, {parameters}) {{"
        f" return run_grid(grid, threads, late, shuffle, [=] {{ {entry}({names}); }}); }}\n"
    )
    library = str(folder / "library.so")
    run_gxx("-shared", f"-I{folder}", *source.options, str(folder / "calls.cpp"), fibers(), "-o", library)
    return ctypes.CDLL(library)


def libraries(folder: Path) -> Callable[[CudaSource], ctypes.CDLL]:
    """Return a function that compiles each text once, wherever it lies."""
    made: dict[object, Future[ctypes.CDLL]] = {}
    lock = Lock()

    def library(source: CudaSource) -> ctypes.CDLL:
        files = (*sorted(source.path.parent.glob("*.cuh")), source.path)
        key = (source.options, tuple(path.read_bytes() for path in files))
        with lock:
            mine = key not in made
            future = made.setdefault(key, Future())
            where = folder / str(len(made))
        if mine:
            try:
                future.set_result(compile_for_host(source, where))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    return library


class PointedArray(np.ndarray):
    """An array with its address where CuPy has it: ``array.data.ptr``."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class PointerDevice(HostDevice):
    """Memory that comes back at the same addresses, as a pool of device memory does."""

    def empty(self, sizes: tuple[int, ...], dtype: str) -> np.ndarray:
        return super().empty(sizes, dtype).view(PointedArray)

    def download(self, array: np.ndarray) -> np.ndarray:
        return np.array(array.view(np.ndarray))


class PlanesBench(EmulatedBench):
    """A bench on the host whose weights have pointers; ``library(source)`` compiles."""

    def __init__(self, library: Callable[[CudaSource], ctypes.CDLL]) -> None:
        super().__init__(lambda path: library(self._source))
        self.device = PointerDevice()

    def function(self, source: CudaSource, entry: str) -> Any:
        self._source = source
        return super().function(source, entry)
