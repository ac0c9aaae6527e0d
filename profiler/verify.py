"""Specimen, variants and shapes -> a verdict for each: parity before speed.

Every launch starts from a poisoned output inside guards. A result must be near the float64 reference, the same at a
second launch, written whole and nowhere else, equal to the bit within its group, and computed by the path that was
promised. ``INCORRECT`` is a wrong result; ``INVALID`` is none that means anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from profiler.errors import LaunchError, MissingToolError, SpecimenError
from profiler.launch import POISON, Bench, Case
from profiler.specimen import Shape, Specimen, Variant

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "cyinst.verify/1"
Verdict = Literal["ok", "INCORRECT", "INVALID", "not run"]
# The second launch starts from other bytes: what keeps both was never written, whatever the type.
SECOND_POISON = 0xA5


@dataclass(frozen=True, slots=True)
class Check:
    """One variant at one shape. ``relative_error`` is ||out - ref|| / ||ref||, None where that is no number.

    ``same_bits_as`` names the variant and shape whose bits this result has; None where nothing was to be compared.
    ``path_ok`` is None where no path was promised. ``extra_bytes`` is the device memory that its preparation took.
    """

    variant: str
    shape: Mapping[str, int]
    verdict: Verdict
    problems: tuple[str, ...] = ()
    relative_error: float | None = None
    path_ok: bool | None = None
    same_bits_as: tuple[str, str] | None = None
    extra_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramCheck:
    """One whole program by one variant; ``digest`` is the SHA-256 of its output, ``same_as`` a variant that agrees."""

    program: str
    variant: str
    verdict: Verdict
    problems: tuple[str, ...] = ()
    digest: str | None = None
    same_as: str | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts of a sweep, variants in the specimen's order, shapes in that of the sweep."""

    specimen: str
    gpu: str
    seed: int
    tolerance: float
    variants: tuple[Variant, ...]
    checks: tuple[Check, ...]
    programs: tuple[ProgramCheck, ...]

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many checks, programs included, got each verdict."""
        return Counter([check.verdict for check in self.checks] + [check.verdict for check in self.programs])

    @property
    def ok(self) -> bool:
        """Whether there were checks, and all of them passed."""
        return set(self.verdicts) == {"ok"}

    def of(self, variant: str) -> tuple[Check, ...]:
        """Return the checks of one variant."""
        return tuple(check for check in self.checks if check.variant == variant)

    def to_dict(self) -> dict[str, Any]:
        """Return the ``cyinst.verify/1`` document."""
        return {
            "schema": SCHEMA,
            "specimen": self.specimen,
            "gpu": self.gpu,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "ok": self.ok,
            "verdicts": dict(self.verdicts),
            "variants": [_described(variant) for variant in self.variants],
            "checks": [
                asdict(x) | {"problems": [*x.problems], "same_bits_as": x.same_bits_as and [*x.same_bits_as]}
                for x in self.checks
            ],
            "programs": [asdict(x) | {"problems": [*x.problems]} for x in self.programs],
        }


def verify(
    specimen: Specimen,
    variants: Sequence[Variant],
    bench: Bench,
    shapes: Sequence[Shape] | None = None,
    seed: int = 0,
    programs: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Check ``variants`` on ``shapes`` (the specimen's sweep), then its programs; ``progress`` hears what comes next.

    A CUDA error that ends the context ends the run: what was left is ``not run``. Raises SpecimenError where the
    specimen itself cannot be checked: its inputs or its reference fail, or a layout size changes values.
    """
    sweep = _Sweep(specimen, bench, seed)
    checks: dict[tuple[str, str], Check] = {}
    shapes = specimen.sweep if shapes is None else shapes
    for shape in shapes:
        if sweep.dead:
            break
        progress(str(shape))
        inputs = sweep.open(shape)
        for variant in variants:
            if not sweep.dead:
                checks[variant.name, str(shape)] = sweep.check(variant, shape, inputs)
    ordered = tuple(checks.get((v.name, str(s))) or Check(v.name, dict(s), "not run") for v in variants for s in shapes)
    wanted = [(name, variant) for name in specimen.programs for variant in variants] if programs else []
    ran = []
    for name, variant in wanted:
        progress(f"program {name}, {variant.name}")
        ran.append(ProgramCheck(name, variant.name, "not run") if sweep.dead else sweep.run_program(name, variant))
    return Verification(specimen.name, bench.gpu, seed, specimen.tolerance, tuple(variants), ordered, tuple(ran))


def describe(specimen: Specimen, variants: Sequence[Variant], shapes: Sequence[Shape]) -> dict[str, Any]:
    """Return the ``cyinst.specimen/1`` document: what a specimen holds, without running anything."""
    return {
        "schema": "cyinst.specimen/1",
        "specimen": specimen.name,
        "about": specimen.about,
        "shape": dict(specimen.shape),
        "layout": list(specimen.layout),
        "tolerance": specimen.tolerance,
        "variants": [_described(variant) for variant in variants],
        "sweep": [dict(shape) for shape in shapes],
        "programs": list(specimen.programs),
    }


def _described(variant: Variant) -> dict[str, Any]:
    return {name: getattr(variant, name) for name in ("name", "idea", "bit_equal", "tolerance")}


@dataclass
class _Leader:
    """The first result of a group that was right; the others must have its bits."""

    variant: str
    shape: str
    result: np.ndarray


@dataclass
class _Sweep:
    specimen: Specimen
    bench: Bench
    seed: int
    dead: bool = False
    references: dict[tuple[Any, ...], tuple[str, np.ndarray]] = field(default_factory=dict)
    leaders: dict[tuple[Any, ...], _Leader] = field(default_factory=dict)
    digests: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def open(self, shape: Shape) -> Mapping[str, Any]:
        """Make the inputs and the reference of a shape; shapes of the same values share the reference."""
        import numpy as np

        name = f"{self.specimen.name} at {shape}"
        inputs = self.specimen.make_inputs(shape, self.seed)
        expected = np.asarray(self.specimen.make_reference(shape, inputs))
        sizes, _ = self.specimen.output_of(shape)
        if expected.shape != sizes:
            raise SpecimenError(f"{name}: the reference is {_sizes(expected.shape)}, the output {_sizes(sizes)}")
        if expected.dtype != np.float64 or not np.isfinite(expected).all():
            raise SpecimenError(f"{name}: the reference must be finite float64")
        other, known = self.references.setdefault(self._values(shape), (str(shape), expected))
        if not np.array_equal(known, expected):
            layout = ", ".join(self.specimen.layout)
            raise SpecimenError(f"{name}: the reference differs from that at {other}, where only {layout} differs")
        return inputs

    def _values(self, shape: Shape) -> tuple[Any, ...]:
        return tuple((name, size) for name, size in shape.items() if name not in self.specimen.layout)

    def check(self, variant: Variant, shape: Shape, inputs: Mapping[str, Any]) -> Check:
        """Launch a variant twice, from different poisons, and judge both results."""
        results, stray = [], None
        wrong_path: list[str] = []
        try:
            case = self.bench.case(self.specimen, variant, shape, inputs)
            case.prepare()
            for byte in (POISON, SECOND_POISON):
                case.poison(byte)
                case.launch()
                results.append(case.result())
                stray = stray or case.stray(byte)
                wrong_path = wrong_path or _wrong_path(case)
        except LaunchError as failure:
            self.dead = not self.bench.device.alive()
            return Check(variant.name, dict(shape), "INVALID", (failure.reason,))
        first, second = results
        wrong_form = _wrong_form(case, first) or _wrong_form(case, second)
        invalid = wrong_form + wrong_path
        problems: list[str] = []
        error = same = None
        if not wrong_form:
            _, expected = self.references[self._values(shape)]
            tolerance = self.specimen.tolerance if variant.tolerance is None else variant.tolerance
            error, problems = _wrong_values(first, second, expected, tolerance, case.writes_out)
        if stray is not None:
            problems.append(f"wrote outside the output: {_bytes(stray[0])}, the nearest {_distance(stray[1], case)}")
        if variant.bit_equal is not None and not problems and not invalid:
            same, differing = self._compare_bits(variant, shape, first)
            problems += differing
        return Check(
            variant.name,
            dict(shape),
            "INVALID" if invalid else "INCORRECT" if problems else "ok",
            (*invalid, *problems),
            error,
            None if variant.path is None else not wrong_path,
            same,
            case.extra_bytes,
        )

    def _compare_bits(
        self, variant: Variant, shape: Shape, result: np.ndarray
    ) -> tuple[tuple[str, str] | None, list[str]]:
        """Return whose bits a result has, and the problem where it has not those of its group's leader."""
        group = (variant.bit_equal, self._values(shape))
        leader = self.leaders.setdefault(group, _Leader(variant.name, str(shape), result))
        if leader.result is result:
            return None, []
        differing = _differing(result, leader.result)
        if differing.any():
            return None, [f"bits differ from {leader.variant} at {leader.shape}: {_where(differing)}"]
        return (leader.variant, leader.shape), []

    def run_program(self, name: str, variant: Variant) -> ProgramCheck:
        """Run a whole program by a variant, and compare its output within the variant's group."""
        invalid: list[str] = []

        def run(shape: Shape, inputs: Mapping[str, Any]) -> np.ndarray:
            case = self.bench.case(self.specimen, variant, shape, inputs)
            case.prepare()
            case.poison()
            case.launch()
            result = case.result()
            # The first will do: a program may launch hundreds of times.
            invalid.extend([f"{x} (at {shape})" for x in _wrong_form(case, result) + _wrong_path(case)][: not invalid])
            return result

        try:
            output = self.specimen.programs[name](run)
            if not isinstance(output, bytes):
                raise TypeError(f"a program returns bytes, not {type(output).__name__}")
        except LaunchError as failure:
            self.dead = not self.bench.device.alive()
            return ProgramCheck(name, variant.name, "INVALID", (failure.reason,))
        except MissingToolError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            return ProgramCheck(name, variant.name, "INVALID", (f"{type(error).__name__}: {text}",))
        digest = hashlib.sha256(output).hexdigest()
        if invalid:
            return ProgramCheck(name, variant.name, "INVALID", tuple(invalid), digest)
        if variant.bit_equal is None:
            return ProgramCheck(name, variant.name, "ok", (), digest)
        leader, wanted = self.digests.setdefault((variant.bit_equal, name), (variant.name, digest))
        if digest != wanted:
            return ProgramCheck(name, variant.name, "INCORRECT", (f"its output differs from that of {leader}",), digest)
        return ProgramCheck(name, variant.name, "ok", (), digest, None if leader == variant.name else leader)


def _wrong_form(case: Case, result: np.ndarray) -> list[str]:
    """Say what is wrong with the sizes or the type of a result."""
    sizes, dtype = case.specimen.output_of(case.shape)
    if result.shape == sizes and str(result.dtype) == dtype:
        return []
    return [f"the output is {result.dtype} {_sizes(result.shape)}, not {dtype} {_sizes(sizes)}"]


def _wrong_path(case: Case) -> list[str]:
    """Say which path ran where it is not the one that the variant promises."""
    if case.variant.path is None:
        return []
    promised = case.variant.path(case.shape)
    if isinstance(promised, str):
        if promised in case.launched:
            return []
        ran = ", ".join(dict.fromkeys(case.launched)) or "no kernel"
        return [f"the path promised did not run: {promised} was not launched, but {ran}"]
    found = case.witness_value()
    return [] if found == promised else [f"the path promised did not run: the witness is {found}, not {promised}"]


def _wrong_values(
    first: np.ndarray, second: np.ndarray, expected: np.ndarray, tolerance: float, poisoned: bool
) -> tuple[float | None, list[str]]:
    """Return ||first - expected|| / ||expected||, None if it is no number, and what is wrong with the results."""
    import numpy as np

    problems = []
    unwritten = np.zeros(first.shape, bool)
    if poisoned:
        unwritten = _holds(first, POISON) & _holds(second, SECOND_POISON)
    if unwritten.any():
        problems.append(f"not written: {_where(unwritten)}")
    with np.errstate(all="ignore"):
        values = first.astype(np.float64)
        nan = np.isnan(values) & ~unwritten
        difference = np.abs(values - expected)
        size = float(np.linalg.norm(expected.ravel()))
        distance = float(np.linalg.norm(difference.ravel()))
        error = distance / size if size else 0.0 if distance == 0 else float("inf")
    if nan.any():
        problems.append(f"NaN: {_where(nan)}")
    elif not error <= tolerance and not unwritten.any():
        worst = np.unravel_index(int(np.nanargmax(difference)), difference.shape)
        at = ", ".join(map(str, map(int, worst)))
        problems.append(
            f"relative error {error:.2g} is above {tolerance:.2g}; worst at [{at}]: "
            f"{values[worst]:.6g} instead of {expected[worst]:.6g}"
        )
    changed = _differing(first, second) & ~unwritten
    if changed.any():
        problems.append(f"not deterministic: a second launch gave other bits: {_where(changed)}")
    return error if np.isfinite(error) else None, problems


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, [elements][bytes of one]."""
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)


def _holds(array: np.ndarray, byte: int) -> np.ndarray:
    found: np.ndarray = (_bits(array) == byte).all(axis=1).reshape(array.shape)
    return found


def _differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    found: np.ndarray = (_bits(one) != _bits(other)).any(axis=1).reshape(one.shape)
    return found


def _where(marked: np.ndarray) -> str:
    import numpy as np

    places = np.argwhere(marked)
    first = ", ".join(map(str, map(int, places[0])))
    return f"{len(places)} of {marked.size} elements, the first at [{first}]"


def _sizes(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes)) or "a scalar"


def _distance(place: int, case: Case) -> str:
    return f"{_bytes(-place)} before it" if place < 0 else f"{_bytes(place - case.out.nbytes + 1)} behind it"


def _bytes(number: int) -> str:
    return f"{number} byte{'' if number == 1 else 's'}"
