"""A specimen: kernels that compute the same thing, with what it takes to check and to weigh them.

A specimen is a folder with a ``spec.py`` that binds a :class:`Specimen` to the name ``SPEC``. It is loaded by its
path, never installed: a user's kernel has the same form as the bundled ones. This room needs no GPU and imports
nothing heavy; ``profiler.launch`` builds and launches what is described here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.errors import CyinstError, NoMatchError, SpecimenError, UsageError
from profiler.model import Work

if TYPE_CHECKING:
    import numpy as np

    from profiler.launch import Case

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Shape(dict[str, int]):
    """The sizes of one problem by name, in the specimen's order: ``Shape(tokens=512, rows=3584, k=3584)``."""

    def __getattr__(self, name: str) -> int:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return " ".join(f"{name}={size}" for name, size in self.items())

    def but(self, **sizes: int) -> Shape:
        """Return this shape with some sizes replaced."""
        return Shape({**self, **sizes})


@dataclass(frozen=True)
class CudaSource:
    """A CUDA file and how to compile it: ``path``, the ``extern "C"`` kernels in it, extra compiler options."""

    path: Path
    entries: tuple[str, ...]
    options: tuple[str, ...] = ()


Launch = Callable[[], Any]
Prepare = Callable[["Case"], Launch]


@dataclass(frozen=True)
class Variant:
    """One way of computing a specimen's output.

    ``prepare`` gets a :class:`profiler.launch.Case` (inputs on the GPU, poisoned output, kernels) and does the work of
    load time; what it returns is called once per launch. ``bit_equal`` names the group of variants whose outputs must
    agree to the bit. ``path`` says, for a shape, which path must have run: the name of a kernel, or the number that the
    kernel writes to ``case.witness``; None promises nothing.
    """

    name: str
    idea: str
    prepare: Prepare
    sources: tuple[CudaSource, ...] = ()
    bit_equal: str | None = None
    path: Callable[[Shape], str | int] | None = None
    tolerance: float | None = None


@dataclass
class Specimen:
    """What is measured: inputs, variants, work, reference.

    ``shape`` is the problem that is measured when none is asked for; ``sweep`` are those on which results are checked.
    Sizes in ``layout`` change how inputs are stored but not their values: results must not depend on them where
    variants are bit-equal. ``tolerance`` bounds ||out - ref|| / ||ref|| against the float64 reference.
    """

    name: str
    about: str
    shape: Shape
    sweep: tuple[Shape, ...]
    tolerance: float
    layout: tuple[str, ...] = ()
    variants: list[Variant] = field(default_factory=list)
    _parts: dict[str, Callable[..., Any]] = field(default_factory=dict, repr=False)
    _programs: dict[str, Callable[..., bytes]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(f"specimen name {self.name!r}: use letters, digits, '_', '-' and '.'")
        for shape in self.sweep:
            if list(shape) != list(self.shape):
                raise UsageError(f"{self.name}: the sweep's shape ({shape}) has other sizes than ({self.shape})")

    # What a spec.py declares, each by a decorator.

    def inputs(self, make: Callable[[Shape, np.random.Generator], Mapping[str, Any]]) -> Callable[..., Any]:
        """Declare how inputs are made: ``make(shape, rng)`` -> NumPy arrays (moved to the GPU) or anything, by name."""
        return self._declare("inputs", make)

    def reference(self, make: Callable[[Shape, Mapping[str, Any]], np.ndarray]) -> Callable[..., Any]:
        """Declare the reference: ``make(shape, inputs)`` -> float64 array, from the inputs as they were made."""
        return self._declare("reference", make)

    def output(self, make: Callable[[Shape], tuple[tuple[int, ...], str]]) -> Callable[..., Any]:
        """Declare the output: ``make(shape)`` -> (sizes, dtype); a floating one is filled with NaN before a launch."""
        return self._declare("output", make)

    def work(self, make: Callable[[Shape], Work]) -> Callable[..., Any]:
        """Declare the work: ``make(shape)`` -> :class:`profiler.model.Work`, in multiply-accumulates."""
        return self._declare("work", make)

    def variant(
        self,
        name: str,
        *,
        idea: str,
        sources: tuple[CudaSource, ...] = (),
        bit_equal: str | None = None,
        path: Callable[[Shape], str | int] | None = None,
        tolerance: float | None = None,
    ) -> Callable[[Prepare], Prepare]:
        """Declare a variant: the decorated function gets a Case and returns the launch. See :class:`Variant`."""
        if not NAME.fullmatch(name):
            raise UsageError(f"{self.name}: variant name {name!r}: use letters, digits, '_', '-' and '.'")
        if any(other.name == name for other in self.variants):
            raise UsageError(f"{self.name}: two variants are called {name!r}")

        def add(prepare: Prepare) -> Prepare:
            self.variants.append(Variant(name, idea, prepare, sources, bit_equal, path, tolerance))
            return prepare

        return add

    def program(self, name: str) -> Callable[[Callable[..., bytes]], Callable[..., bytes]]:
        """Declare a whole program over the kernel: ``make(run)`` -> bytes, equal across bit-equal variants.

        ``run(shape, inputs)`` computes one output by the variant under test and returns it as a NumPy array.
        """

        def add(make: Callable[..., bytes]) -> Callable[..., bytes]:
            self._programs[name] = make
            return make

        return add

    def _declare(self, part: str, make: Callable[..., Any]) -> Callable[..., Any]:
        if part in self._parts:
            raise UsageError(f"{self.name}: {part} is declared twice")
        self._parts[part] = make
        return make

    # What the product asks of it.

    def declares(self, part: str) -> bool:
        """Say whether ``inputs``, ``reference``, ``output`` or ``work`` was declared."""
        return part in self._parts

    def make_inputs(self, shape: Shape, seed: int = 0) -> Mapping[str, Any]:
        """Return the inputs of ``shape``, the same for the same seed. Raises SpecimenError where the spec fails."""
        import numpy as np

        inputs: Mapping[str, Any] = self._ask("inputs", shape, np.random.default_rng(seed))
        return inputs

    def make_reference(self, shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
        """Return the float64 reference output. Raises SpecimenError where the spec fails."""
        expected: np.ndarray = self._ask("reference", shape, inputs)
        return expected

    def output_of(self, shape: Shape) -> tuple[tuple[int, ...], str]:
        """Return the output's sizes and dtype. Raises SpecimenError where the spec fails."""
        sizes, dtype = self._ask("output", shape)
        return tuple(sizes), str(dtype)

    def _ask(self, part: str, shape: Shape, *more: Any) -> Any:
        try:
            return self._parts[part](shape, *more)
        except Exception as error:
            what = "" if isinstance(error, CyinstError) else f"{type(error).__name__}: "
            text = " ".join(str(error).split())[:300]
            raise SpecimenError(f"{self.name} at {shape}: {part} fails: {what}{text}".removesuffix(": ")) from error

    def work_of(self, shape: Shape) -> Work | None:
        """Return the declared work, None when the specimen declares none."""
        make = self._parts.get("work")
        return None if make is None else make(shape)

    @property
    def programs(self) -> Mapping[str, Callable[..., bytes]]:
        """Whole programs over the kernel, by name."""
        return self._programs

    def pick(self, names: tuple[str, ...]) -> tuple[Variant, ...]:
        """Return the variants called ``names`` (an unambiguous beginning will do), all of them for no name."""
        return tuple(dict.fromkeys(self._one(name) for name in names)) if names else tuple(self.variants)

    def _one(self, name: str) -> Variant:
        exact = [v for v in self.variants if v.name == name]
        found = exact or [v for v in self.variants if v.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        problem = f"several variants begin with {name!r}" if found else f"no variant is called {name!r}"
        raise NoMatchError(f"{self.name}: {problem}; it has {', '.join(v.name for v in found or self.variants)}")

    def shape_from(self, text: str | None) -> Shape:
        """Read ``tokens=512,k=4096`` (the rest as measured by default) or ``512x3584x4096`` (in order)."""
        if not text:
            return self.shape
        given = list(self._sizes(text))
        if len(dict(given)) < len(given):
            raise UsageError(f"--shape {text!r}: it gives a size twice")
        return self.shape.but(**dict(given))

    def _sizes(self, text: str) -> Iterator[tuple[str, int]]:
        names = list(self.shape)
        parts = re.split(r"[,\s]+" if "=" in text else r"[x,\s]+", text.strip())
        if len(parts) > len(names):
            raise UsageError(f"--shape {text!r}: {self.name} has {len(names)} sizes: {', '.join(names)}")
        for place, part in enumerate(parts):
            name, size = part.split("=", 1) if "=" in part else (names[place], part)
            if name not in names or not size.isdecimal() or int(size) < 1:
                raise UsageError(
                    f"--shape {text!r}: give {', '.join(f'{n}=N' for n in names)}, or the numbers in that order"
                )
            yield name, int(size)
