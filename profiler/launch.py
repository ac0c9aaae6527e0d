"""Specimen, variant, shape and inputs -> launches inside NVTX ranges, and their results as NumPy arrays.

The only room that imports cupy, inside a function: without a GPU everything that does not launch works.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from profiler import build
from profiler.errors import LaunchError, MissingToolError, SpecimenError
from profiler.ranges import DOMAIN, annotate
from profiler.specimen import CudaSource, Launch, Shape, Specimen, Variant

if TYPE_CHECKING:
    import numpy as np

# Bytes before and after the output in which no kernel may write.
GUARD = 1 << 20
# What an output and its guards hold before a launch: bytes of ones are a NaN in every floating format.
POISON = 0xFF
# A kernel gets more dynamic shared memory than this only when its attribute allows it (CUDA C++ Programming Guide).
FREE_SHARED = 48 * 1024
# How NumPy, CuPy, PyTorch and others say that a value is an array.
_ARRAYS = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")


class Device(Protocol):
    """Where launches run: CuPy's GPU; in tests, NumPy on the host."""

    name: str
    arch: str
    multiprocessors: int

    @property
    def nvrtc(self) -> build.Nvrtc | None:
        """Return the compiler that the device brings along."""

    def upload(self, array: np.ndarray) -> Any:
        """Return a copy of a NumPy array in device memory."""

    def download(self, array: Any) -> np.ndarray:
        """Return a copy of a device array, of anybody's, as a NumPy array."""

    def empty(self, sizes: tuple[int, ...], dtype: str) -> Any:
        """Return an array with undefined contents."""

    def fill(self, array: Any, byte: int) -> None:
        """Set every byte of an array."""

    def used_bytes(self) -> int:
        """Return the device memory that arrays take now."""

    def synchronise(self) -> None:
        """Wait for everything that was launched. Raises what failed meanwhile."""

    def alive(self) -> bool:
        """Say whether anything can be launched yet: some CUDA errors end the context."""

    def load(self, cubin: Path, entry: str) -> Any:
        """Return a kernel, called as ``function(grid, block, args, shared_mem=bytes)``."""


class Kernel:
    """A kernel of the variant under test: ``kernel(grid, block, args, shared=0)`` launches it and records that."""

    def __init__(self, entry: str, function: Any, launched: list[str]) -> None:
        """``launched`` gets the entry's name at every launch."""
        self.entry = entry
        self._function = function
        self._launched = launched
        self._allowed = FREE_SHARED

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any] = (), shared: int = 0) -> None:
        """Launch: up to three sizes each; ``args`` are device arrays, NumPy scalars, or None for a null pointer.

        ``shared`` bytes of dynamic shared memory may exceed 48 KB.
        """
        import numpy as np

        for place, arg in enumerate(args):
            if type(arg) in (int, float, bool):
                raise SpecimenError(f"{self.entry}: argument {place} is a Python number: say np.int32({arg}) or alike")
        if shared > self._allowed:
            self._function.max_dynamic_shared_size_bytes = shared
            self._allowed = shared
        self._launched.append(self.entry)
        words = tuple(np.uint64(0) if arg is None else arg for arg in args)
        self._function(tuple(map(int, grid)), tuple(map(int, block)), words, shared_mem=shared)


class Bench:
    """A device with the kernels that were built for it."""

    def __init__(self, device: Device | None = None, *, split_waits: str | None = None) -> None:
        """Open the GPU. Raises MissingToolError, in one line, when CuPy, a driver or a GPU is missing.

        ``split_waits``: load copies of the kernels whose joint waits are told apart, the ``oldest`` or the ``youngest``
        load first (profiler/split_waits.py); ``split`` and ``left`` count the waits of the cubins that were loaded.
        """
        self.device = _open_gpu() if device is None else device
        self.split_waits, self.split, self.left = split_waits, 0, 0
        self._functions: dict[tuple[CudaSource, str], Any] = {}

    @property
    def gpu(self) -> str:
        """The device's name."""
        return self.device.name

    def case(self, specimen: Specimen, variant: Variant, shape: Shape, inputs: Mapping[str, Any]) -> Case:
        """Return one problem for one variant: inputs on the device, output poisoned."""
        return Case(self, specimen, variant, shape, inputs)

    def function(self, source: CudaSource, entry: str) -> Any:
        """Return a kernel of a source, built and loaded once. Raises SpecimenError, as often as it is asked for."""
        if (source, entry) not in self._functions:
            try:
                self._functions[source, entry] = self._load(source, entry)
            except SpecimenError as error:
                # What does not compile for one shape does not for the next.
                self._functions[source, entry] = error
        found = self._functions[source, entry]
        if isinstance(found, SpecimenError):
            raise found
        return found

    def _load(self, source: CudaSource, entry: str) -> Any:
        cubin = build.build(source, self.device.arch, self.device.nvrtc)
        if self.split_waits:
            from profiler.split_waits import split_waits

            copy = split_waits(cubin.read_bytes(), self.split_waits)
            cubin = build.keep(copy.image, f"{cubin.stem}-{self.split_waits}.cubin")
            self.split, self.left = self.split + len(copy.splits), self.left + copy.left
        try:
            return self.device.load(cubin, entry)
        except RuntimeError as error:
            raise SpecimenError(f'{source.path}: extern "C" {entry} cannot be loaded: {error}') from error


class Case:
    """One variant at one shape.

    What ``prepare`` may use: shape, inputs, out, witness, kernel(), array(), multiprocessors.
    """

    def __init__(
        self, bench: Bench, specimen: Specimen, variant: Variant, shape: Shape, inputs: Mapping[str, Any]
    ) -> None:
        """Put the inputs on the device and make a poisoned output. Raises LaunchError when that fails."""
        import numpy as np

        self._bench, self._device = bench, bench.device
        self.specimen, self.variant, self.shape = specimen, variant, shape
        self.range = f"{specimen.name}.{variant.name}"
        self.launched: list[str] = []
        self.extra_bytes = 0
        self._asked_bytes = 0
        self._call: Launch | None = None
        self._returned: Any = None
        with self._naming_failures():
            self.inputs = {n: self._device.upload(a) if isinstance(a, np.ndarray) else a for n, a in inputs.items()}
            self.witness = self._device.empty((1,), "uint32")
            sizes, dtype = specimen.output_of(shape)
            size = int(np.prod(sizes)) * np.dtype(dtype).itemsize
            self._memory = self._device.empty((GUARD + size + GUARD,), "uint8")
            self.out = self._memory[GUARD : GUARD + size].view(dtype).reshape(sizes)
        self.poison()

    @property
    def gpu(self) -> str:
        """The device's name."""
        return self._bench.gpu

    @property
    def multiprocessors(self) -> int:
        """How many streaming multiprocessors the device has."""
        return self._device.multiprocessors

    @property
    def filter(self) -> str:
        """What makes ncu capture this variant's launches alone: ``--nvtx --nvtx-include`` and this."""
        return f"{DOMAIN}@{self.range}/"

    def kernel(self, entry: str) -> Kernel:
        """Return the kernel called ``entry``, of the variant's sources. Raises SpecimenError if none declares it."""
        for source in self.variant.sources:
            if entry in source.entries:
                return Kernel(entry, self._bench.function(source, entry), self.launched)
        declared = ", ".join(e for source in self.variant.sources for e in source.entries) or "none"
        raise SpecimenError(f"no source of {self.variant.name} declares the kernel {entry!r}; declared are: {declared}")

    def array(self, shape: int | tuple[int, ...], dtype: str) -> Any:
        """Return a device array with undefined contents, which counts as the variant's extra memory."""
        made = self._device.empty((shape,) if isinstance(shape, int) else tuple(shape), dtype)
        self._asked_bytes += made.nbytes
        return made

    # What the product does with it.

    def prepare(self) -> None:
        """Run the variant's ``prepare``, in the range ``SPEC.VARIANT.prepare``. Raises LaunchError.

        ``extra_bytes`` is then the device memory that it took: what ``array()`` gave out, or how much more of CuPy's
        pool is in use than before, whichever is larger. Memory of other allocators (PyTorch's) is not seen.
        """
        before = self._device.used_bytes()
        with self._naming_failures(), annotate(f"{self.range}.prepare"):
            call = self.variant.prepare(self)
            self._device.synchronise()
        if not callable(call):
            raise LaunchError(self._where(), "prepare returned no launch: it returns a function without arguments")
        self._call = call
        self.extra_bytes = max(self._asked_bytes, self._device.used_bytes() - before)

    def ready(self) -> Launch:
        """Return the prepared launch itself, for whoever times it: no range, no waiting. Raises LaunchError."""
        if self._call is None:
            self.prepare()
        assert self._call is not None
        return self._call

    def poison(self, byte: int = POISON) -> None:
        """Fill the output and its guards with ``byte``, zero the witness, and forget the last launch."""
        with self._naming_failures():
            self._device.fill(self._memory, byte)
            self._device.fill(self.witness, 0)
            self._device.synchronise()
        self._returned = None
        self.launched.clear()

    def launch(self, warm_up: bool = False) -> None:
        """Launch once, in the range ``SPEC.VARIANT``, and wait for it. Raises LaunchError.

        A ``warm_up`` is in the range ``SPEC.VARIANT.warm_up``, so that ncu's filter leaves it out.
        """
        call = self.ready()
        self.launched.clear()
        with self._naming_failures(), annotate(f"{self.range}.warm_up" if warm_up else self.range):
            returned = call()
            # Triton's launches return an object that is no array, and no output.
            self._returned = returned if any(hasattr(returned, name) for name in _ARRAYS) else None
            self._device.synchronise()

    def result(self) -> np.ndarray:
        """Return a copy of the output of the last launch: what it returned, else ``out``."""
        with self._naming_failures():
            return self._device.download(self.out if self._returned is None else self._returned)

    @property
    def writes_out(self) -> bool:
        """Whether the output is ``out``, which was poisoned, and no array that the launch returned."""
        return self._returned is None

    def stray(self, byte: int = POISON) -> tuple[int, int] | None:
        """Return what was written around the output since ``poison(byte)``: how many bytes, and the nearest place.

        The place is in bytes from the output's start, negative before it. None when the guards are as they were.
        """
        import numpy as np

        with self._naming_failures():
            before = self._device.download(self._memory[:GUARD])
            after = self._device.download(self._memory[-GUARD:])
        hit_before, hit_after = np.flatnonzero(before != byte), np.flatnonzero(after != byte)
        if not hit_before.size and not hit_after.size:
            return None
        nearest = self.out.nbytes + int(hit_after[0]) if hit_after.size else int(hit_before[-1]) - GUARD
        return hit_before.size + hit_after.size, nearest

    def witness_value(self) -> int:
        """Return what the launch left in ``witness``."""
        return int(self._device.download(self.witness)[0])

    def _where(self) -> str:
        return f"{self.range} at {self.shape}"

    @contextmanager
    def _naming_failures(self) -> Iterator[None]:
        """Whatever a variant or CUDA raises becomes one line that names the variant, the shape and the kernel."""
        try:
            yield
        except (MissingToolError, LaunchError):
            raise
        except Exception as error:
            raise LaunchError(self._where(), self._reason(error)) from error

    def _reason(self, error: Exception) -> str:
        text = " ".join(str(error).split())[:300]
        if isinstance(error, SpecimenError):
            return text
        if type(error).__name__.startswith("CUDA"):
            return f"{self.launched[-1]}: {text}" if self.launched else text
        own = getattr(getattr(self.variant.prepare, "__code__", None), "co_filename", None)
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
        at = f"{Path(own).name}:{lines[-1]}: " if own and lines else ""
        return f"{at}{type(error).__name__}: {text}".removesuffix(": ")


class _Nvrtc:
    """NVRTC through CuPy's binding."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self.version = "{}.{}".format(*binding.getVersion())

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        program = self._binding.createProgram(text, name, (), ())
        try:
            self._binding.compileProgram(program, tuple(options))
            image: bytes = self._binding.getCUBIN(program)
        except self._binding.NVRTCError as error:
            raise build.CompilerError(self._binding.getProgramLog(program) or f"error: {error}") from None
        finally:
            self._binding.destroyProgram(program)
        # CuPy (14.2) drops the last byte as if the cubin were text. The driver does not mind, but nvdisasm does. It
        # is the top byte of the last program header's alignment.
        headers, size, number = (int.from_bytes(image[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
        return image + b"\0" if len(image) == headers + size * number - 1 else image


class _Gpu:
    """The current device of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.arch = build.architecture(properties["major"], properties["minor"])
        self.multiprocessors = int(properties["multiProcessorCount"])

    @property
    def nvrtc(self) -> build.Nvrtc | None:
        try:
            return _Nvrtc(self._cupy.cuda.nvrtc)
        # CuPy raises classes of its own where the library is missing.
        except Exception:
            return None

    def upload(self, array: np.ndarray) -> Any:
        return self._cupy.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        import numpy as np

        if hasattr(array, "detach"):
            # A tensor of PyTorch; NumPy has no bfloat16.
            array = array.detach()
            return np.array((array.float() if str(array.dtype) == "torch.bfloat16" else array).cpu().numpy())
        if hasattr(array, "__cuda_array_interface__"):
            return np.array(self._cupy.asnumpy(self._cupy.asarray(array)))
        if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
            return np.array(self._cupy.asnumpy(self._cupy.from_dlpack(array)))
        return np.array(array)

    def empty(self, sizes: tuple[int, ...], dtype: str) -> Any:
        return self._cupy.empty(sizes, dtype)

    def fill(self, array: Any, byte: int) -> None:
        array.data.memset(byte, array.nbytes)

    def used_bytes(self) -> int:
        return int(self._cupy.get_default_memory_pool().used_bytes())

    def synchronise(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()

    def alive(self) -> bool:
        try:
            self.synchronise()
            self._cupy.cuda.runtime.memGetInfo()
        except RuntimeError:
            return False
        return True

    def load(self, cubin: Path, entry: str) -> Any:
        return self._cupy.RawModule(path=str(cubin)).get_function(entry)


def _open_gpu() -> Device:
    try:
        import cupy
    except ImportError as error:
        why = "" if error.name == "cupy" else f" ({' '.join(str(error).split())[:200]})"
        raise MissingToolError(
            f"launching needs CuPy, which is not installed{why}: pip install 'cyinst[cupy]'"
        ) from None
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return _Gpu(cupy)
        why = "the driver reports none"
    except RuntimeError as error:
        why = str(error)
    raise MissingToolError(f"launching needs an NVIDIA GPU, and none was found: {why}; cyinst doctor looks closer")
