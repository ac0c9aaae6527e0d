"""A bench without a GPU: NumPy stands in for the device, and kernels are Python functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from profiler.launch import Bench
from profiler.loading import load_specimen
from profiler.specimen import CudaSource

PLANTED = Path(__file__).parent / "specimens" / "planted"


class HostDevice:
    """Every call is finished when it returns, so errors come at once; ``dead`` is a context that was lost."""

    name = "host"
    arch = "sm_90a"
    multiprocessors = 4
    nvrtc = None

    def __init__(self) -> None:
        self.dead = False
        self.used = 0

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def download(self, array: Any) -> np.ndarray:
        return np.array(array)

    def empty(self, sizes: tuple[int, ...], dtype: str) -> np.ndarray:
        # Not empty: what a test reads by mistake should be the same every time.
        made = np.zeros(sizes, dtype)
        self.used += made.nbytes
        return made

    def fill(self, array: np.ndarray, byte: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = byte

    def used_bytes(self) -> int:
        return self.used

    def synchronise(self) -> None:
        if self.dead:
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    def alive(self) -> bool:
        return not self.dead

    def load(self, cubin: Path, entry: str) -> Any:
        raise AssertionError("the host loads no cubins")


class HostBench(Bench):
    """Kernels are looked up by their entry's name; what they were called with is kept."""

    def __init__(self) -> None:
        super().__init__(HostDevice())
        self.calls: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.allowed_shared: list[int] = []

    def function(self, source: CudaSource, entry: str) -> Any:
        return HostKernel(self, entry)


class HostKernel:
    def __init__(self, bench: HostBench, entry: str) -> None:
        self.bench, self.entry = bench, entry

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes":
            self.bench.allowed_shared.append(value)
        else:
            super().__setattr__(name, value)

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int) -> None:
        self.bench.calls.append((self.entry, grid, block, shared_mem))
        out, x, cols = args
        out[...] = np.float32(2) * x[:, :cols] + np.float32(1)


def planted() -> Any:
    return load_specimen(PLANTED)
