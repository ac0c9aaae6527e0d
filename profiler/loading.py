"""The path or name of a specimen -> the loaded :class:`Specimen`, with the variants that were asked for.

A specimen is a folder with a ``spec.py``, or a single ``.py`` file, that binds the name ``SPEC``. It is run from where
it lies and never installed. The bundled ones are the folders of ``kernels/``, in an installed wheel of
``profiler/specimens``.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from profiler.errors import CyinstError, NoMatchError, SpecimenError
from profiler.specimen import Specimen

PARTS = ("inputs", "reference", "output")
# A message names the specimens of a folder one by one up to this many.
FEW = 5
# Modules that specs share, by resolved path: everybody gets the same object.
_shared: dict[Path, ModuleType] = {}
# Every file that was run from its path: the specimens' own code.
_own: set[Path] = set()


class Chosen(NamedTuple):
    """What a person asked for: the specimen, the names of its variants (none: all of them), the file it came from."""

    specimen: Specimen
    names: tuple[str, ...]
    path: Path


def resolve(text: str) -> Chosen:
    """Load what ``PATH[:VARIANT[,VARIANT...]]`` names; PATH is a folder, a file, or the name of a bundled specimen.

    Raises NoMatchError that lists the bundled names, and SpecimenError where the file does not load. The names of
    variants are returned as they were written: ``Specimen.pick`` finds them.
    """
    place, _, names = text.rpartition(":")
    if not place or _spec_file(text) is not None:
        # No variant, or a colon that belongs to the path itself.
        place, names = text.removesuffix(":"), ""
    path = _spec_file(place)
    if path is None:
        listed = ", ".join(_few(bundled())) or "none"
        raise NoMatchError(f"{place!r}: no specimen (a folder with spec.py, or a .py file) here; bundled are {listed}")
    return Chosen(load_specimen(path), tuple(filter(None, (name.strip() for name in names.split(",")))), path)


def bundled() -> dict[str, Path]:
    """Return the specimens that come with the product: name -> ``spec.py``."""
    root = bundled_folder()
    return {path.parent.relative_to(root).as_posix(): path for path in sorted(root.glob("**/spec.py"))}


def _few(names: Iterable[str]) -> Iterator[str]:
    """Yield names, of a folder with many of them its own."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    for folder, members in folders.items():
        yield from [f"{folder}/... ({len(members)})"] if folder and len(members) > FEW else members


def bundled_folder() -> Path:
    """Return where the bundled specimens lie: in the installed package, else beside it in a source tree."""
    package = Path(__file__).resolve().parent
    installed = package / "specimens"
    return installed if installed.is_dir() else package.parent / "kernels"


def _spec_file(text: str) -> Path | None:
    """Return the file that a person means, as a path from here first, then among the bundled ones."""
    for place in (Path(text), bundled_folder() / text):
        for path in (place / "spec.py", place, place.with_name(f"{place.name}.py")) if place.name else (place,):
            if path.suffix == ".py" and path.is_file():
                return path
    return None


def load_specimen(path: Path) -> Specimen:
    """Run a spec and return its SPEC. ``path`` is the folder of a ``spec.py``, or a ``.py`` file.

    While it runs, its own folder is searched first for what it imports. Raises SpecimenError, in one line with file
    and line number, for what does not run, binds no SPEC, or declares too little to be checked.
    """
    file = path / "spec.py" if path.is_dir() else path
    if not file.is_file():
        raise SpecimenError(f"{file}: there is no such specimen")
    with _imports_from(file.resolve().parent):
        found = getattr(_run(file), "SPEC", None)
    if found is None:
        raise SpecimenError(f"{file}: binds no SPEC; a specimen says SPEC = Specimen(...)")
    if not isinstance(found, Specimen):
        raise SpecimenError(f"{file}: SPEC is a {type(found).__name__}, not a profiler.specimen.Specimen")
    missing = [f"@SPEC.{part}" for part in PARTS if not found.declares(part)]
    if not found.variants:
        missing.append("@SPEC.variant(...)")
    if missing:
        raise SpecimenError(f"{file}: SPEC {found.name!r} lacks {', '.join(missing)}")
    return found


def neighbour(file: str | Path, relative: str) -> ModuleType:
    """Return the module at ``relative``, seen from ``file``: how specs share code, ``neighbour(__file__, "../q8.py")``.

    It is run once, whoever asks. Raises SpecimenError when there is no such file.
    """
    path = (Path(file).resolve().parent / relative).resolve()
    if path not in _shared:
        if not path.is_file():
            raise SpecimenError(f"{file}: it shares code with {relative}, but there is no {path}")
        _shared[path] = _execute(path)
    return _shared[path]


def _execute(path: Path) -> ModuleType:
    # The name is of the path, so that two specs do not meet; dataclasses look their module up by it.
    name = f"cyinst_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    how = spec_from_file_location(name, path)
    if how is None or how.loader is None:
        raise SpecimenError(f"{path}: is no Python file")
    _own.add(path)
    module = module_from_spec(how)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        how.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def _run(file: Path) -> ModuleType:
    try:
        return _execute(file.resolve())
    except SyntaxError as error:
        where = file if error.filename == str(file.resolve()) else error.filename
        raise SpecimenError(f"{where}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        what = "" if isinstance(error, CyinstError) else f"{type(error).__name__}: "
        text = " ".join(str(error).split())[:300]
        raise SpecimenError(f"{_place(error, file)}: {what}{text}".removesuffix(": ")) from error


def _place(error: BaseException, file: Path) -> str:
    """Where it went wrong in the specimen's own code: a library's line would not tell its author what to change."""
    here = file.resolve()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path == here:
            return f"{file}:{frame.lineno}"
        if path in _own or path.parent == here.parent:
            return f"{path}:{frame.lineno}"
    return str(file)


@contextmanager
def _imports_from(folder: Path) -> Iterator[None]:
    """Let ``import x`` find the modules of a folder; they are forgotten after, so that the next spec finds its own."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and Path(origin).parent == folder and not name.startswith("cyinst_"):
                del sys.modules[name]
