"""A report's bytes -> the machine code of each launch: container -> cubin -> nvdisasm -> Code. No GPU is needed."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from profiler import elf, nvdisasm, sass
from profiler.code import Code, Function
from profiler.container import MAGIC, CodeIndex, Module, read_modules, unpacked
from profiler.errors import ReportError
from profiler.lines import line_tables
from profiler.model import Instances, LaunchProfile
from profiler.vocabulary import EXECUTED_PER_PC, FUNCTION_PCS, WarpState

# Before Volta an instruction had 64 bits, and shared its scheduling word with others.
FIRST_SM = 70


def code_of(report: str | os.PathLike[str] | bytes, launch: LaunchProfile) -> Code:
    """Return the machine code of one launch; as ``load_code``, which is cheaper for several launches."""
    return load_code(report, [launch])[launch.index]


def load_code(
    report: str | os.PathLike[str] | bytes,
    launches: Iterable[LaunchProfile],
    *,
    timeout: float = nvdisasm.TIMEOUT,
) -> dict[int, Code]:
    """Return {launch.index: Code} for launches of one report, given by its path or its bytes.

    A launch whose code cannot be had gets a Code without functions, whose ``problems`` say why. nvdisasm runs once
    for each cubin, unless its answer is in the cache; ``timeout`` is for one run, in seconds.

    Raises ReportError when the report cannot be read or holds no machine code, MissingToolError without nvdisasm.
    """
    return CodeReader(report, timeout=timeout).codes(launches)


class CodeReader:
    """The code of one report: parsed once, disassembled as launches ask for it."""

    def __init__(self, report: str | os.PathLike[str] | bytes, *, timeout: float = nvdisasm.TIMEOUT) -> None:
        """Read a report by path or bytes. Raises ReportError when it holds no machine code."""
        self.timeout = timeout
        self.index = _index(report)
        if not any(module.binary for module in self.index.modules):
            why = "; ".join(self.index.problems) or "it embeds no cubin"
            raise ReportError(
                f"{_named(report)}the report holds no machine code ({why}); capture it with SourceCounters"
            )
        self.modules = [_Loaded(module) for module in self.index.modules]

    def prefetch(self) -> None:
        """Disassemble the kernel of a report of one kernel, before its launches have been read."""
        kernels = {(r.mangled, r.references) for r in self.index.results if r.mangled}
        if len(kernels) != 1:
            return
        ((mangled, references),) = kernels
        for module in self.modules:
            if module.module.reference in references and mangled is not None:
                module.parse()
                section = module.section_of(mangled)
                if section is not None:
                    module.disassemble([section], self.timeout)

    def codes(self, launches: Iterable[LaunchProfile]) -> dict[int, Code]:
        """Return {launch.index: Code}, as ``load_code``."""
        launches = list(launches)
        picks = {launch.index: _pick(launch, self.index, self.modules) for launch in launches}
        wanted: dict[int, set[int]] = {}
        for pick in picks.values():
            if pick.module is not None:
                wanted.setdefault(self.modules.index(pick.module), set()).update(pick.sections)
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            # Iterated, so that an exception of a worker is raised here.
            for _ in pool.map(
                lambda item: self.modules[item[0]].disassemble(sorted(item[1]), self.timeout), wanted.items()
            ):
                pass
        return {launch.index: _code(launch, picks[launch.index], self.index.problems) for launch in launches}


def open_code(path: str) -> CodeReader | None:
    """Open the code of a report and disassemble ahead if it has one kernel; None when there is none to read."""
    try:
        reader = CodeReader(path)
    except ReportError:
        # Whatever is wrong with the file, reading it says so; a report without code is no error here.
        return None
    reader.prefetch()
    return reader


def _named(report: str | os.PathLike[str] | bytes) -> str:
    return "" if isinstance(report, bytes) else f"{os.fspath(report)}: "


def _index(report: str | os.PathLike[str] | bytes) -> CodeIndex:
    if isinstance(report, bytes):
        data = report
    else:
        try:
            data = Path(report).read_bytes()
        except OSError as error:
            raise ReportError(f"{_named(report)}cannot be read ({error.strerror})") from error
    whole = unpacked(data)
    if whole is None:
        remedy = "pip install 'cyinst[zstd]', or zstd -d and name it .ncu-rep"
        raise ReportError(f"{_named(report)}the compressed report cannot be unpacked for its machine code: {remedy}")
    data = whole
    if data[:4] != MAGIC:
        raise ReportError(f"{_named(report)}not an Nsight Compute report (no NVR mark at its start)")
    index = read_modules(data)
    if index.problems and not any(module.binary for module in index.modules):
        # The blocks cannot be walked; a cubin can be told from what is around it.
        return CodeIndex(tuple(Module(None, image, None) for image in elf.carve(data)), index.results, index.problems)
    return index


@dataclass(eq=False)
class _Loaded:
    """A module, its image once parsed (None: ``problem`` says why), and its functions once disassembled."""

    module: Module
    image: elf.Image | None = None
    digest: str = ""
    problem: str | None = None
    addresses: dict[int, int] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    parsed: bool = False

    def parse(self) -> None:
        """Parse the image and find the addresses of its code sections: {section index: address}."""
        if self.parsed:
            return
        self.parsed = True
        if not self.module.binary:
            self.problem = "the report names a code module that it does not hold"
            return
        try:
            original = elf.parse(self.module.binary)
            self.image = original.unrelocated()
        except ReportError as error:
            self.problem = str(error)
            return
        self.digest = hashlib.sha256(self.image.data).hexdigest()
        code = {section.index for section in self.image.code_sections}
        for section in original.code_sections:
            base = original.base(section)
            if base is not None:
                self.addresses[section.index] = base
        for loaded in self.module.loaded:
            symbol = self.image.symbols[loaded.symbol] if loaded.symbol < len(self.image.symbols) else None
            if symbol is not None and symbol.name == loaded.name and symbol.section in code:
                self.addresses[symbol.section] = loaded.address - symbol.value

    def section_of(self, mangled: str) -> int | None:
        """Return the index of the code section of a kernel."""
        if self.image is None:
            return None
        for section in self.image.code_sections:
            if section.name == elf.TEXT + mangled:
                return section.index
        return next(
            (index for index, found in self.image.functions.items() if any(s.name == mangled for s in found)), None
        )

    def disassemble(self, sections: Sequence[int], timeout: float) -> None:
        """Fill ``functions`` for these sections, or say in ``lacks`` what is missing."""
        image = self.image
        # Once each: what nvdisasm refused it refuses again.
        sections = [section for section in sections if section not in self.tried]
        self.tried.update(sections)
        if image is None or not sections:
            return
        if image.sm < FIRST_SM:
            self.lacks.append(f"sm_{image.sm} code is not decoded: its instructions are not 128 bits wide")
            return
        symbols = {
            index: entry.index for index in sections if (entry := image.entry(image.sections[index])) is not None
        }
        if not symbols:
            self.lacks.append("the cubin's functions have no symbols")
            return
        listing = nvdisasm.disassemble(image.data, list(symbols.values()), timeout=timeout)
        if listing.problem is not None:
            self.lacks.append(listing.problem)
        if not listing.text:
            return
        # nvdisasm prints in the order of the section table.
        asked = sorted(symbols)
        codes = [image.content(image.sections[index]) for index in asked]
        tables = line_tables(image)
        frames = [tables[index].frames_at if index in tables else None for index in asked]
        parts = sass.parse(listing.text, codes, frames)
        if len(parts) != len(asked):
            self.lacks.append(f"nvdisasm printed {len(parts)} of {len(asked)} functions")
            return
        for index, part in zip(asked, parts, strict=True):
            self.functions[index] = self._function(image, index, part)

    def _function(self, image: elf.Image, index: int, part: sass.Listing) -> Function:
        section = image.sections[index]
        if len(part.instructions) * 16 != section.size:
            self.lacks.append(f"{section.name}: {len(part.instructions)} instructions in {section.size} bytes")
        at_start = [name for offset, name in part.functions if offset == 0]
        name = (at_start or [section.name.removeprefix(elf.TEXT)])[0]
        inner = tuple((offset, label) for offset, label in part.functions if offset > 0)
        return Function(name, self.addresses.get(index), part.instructions, part.branch_targets, inner)


@dataclass(frozen=True, slots=True)
class _Pick:
    """Where the code of a launch is: its module, and the code sections it may run, the kernel's first."""

    module: _Loaded | None
    sections: tuple[int, ...] = ()
    address: int | None = None
    problems: tuple[str, ...] = ()


def _pick(launch: LaunchProfile, index: CodeIndex, modules: Sequence[_Loaded]) -> _Pick:
    if launch.workload != "kernel":
        return _Pick(None, problems=(f"a {launch.workload} has no code of its own: it holds several kernels",))
    candidates = _candidates(launch, index, modules)
    for module in candidates:
        module.parse()
    known = [(m, s) for m in candidates if (s := m.section_of(launch.mangled)) is not None]
    if not known:
        why = next((m.problem for m in candidates if m.problem), None)
        return _Pick(None, problems=(why or f"no cubin of the report holds {launch.mangled or 'the kernel'}",))
    bases = _integers(launch.instances(FUNCTION_PCS), ids=False)
    # Kernels of the same name in several modules (code generators do that) differ by where they were loaded.
    agreeing = [(m, s) for m, s in known if m.addresses.get(s) in bases] if bases else []
    module, kernel = (agreeing or known)[0]
    pcs = _pcs(launch)
    address, problems = _address(module.addresses.get(kernel), bases, pcs)
    return _Pick(module, _sections(module, kernel, bases, pcs), address, problems)


def _candidates(launch: LaunchProfile, index: CodeIndex, modules: Sequence[_Loaded]) -> list[_Loaded]:
    """The modules that may hold a launch's kernel, the likeliest first: by position in the file, by name, all."""
    references: list[int] = []
    if launch.index < len(index.results) and index.results[launch.index].mangled == launch.mangled:
        references += index.results[launch.index].references
    for result in index.results:
        if result.mangled == launch.mangled:
            references += result.references
    by_reference = {m.module.reference: m for m in modules}
    named = [by_reference[r] for r in dict.fromkeys(references) if r in by_reference]
    return named or list(modules)


def _address(recorded: int | None, bases: Sequence[int], pcs: Sequence[int]) -> tuple[int | None, tuple[str, ...]]:
    """Return the kernel's address, from the firmest source there is, and what is doubtful about it."""
    if recorded is not None and (not bases or recorded in bases):
        return recorded, ()
    if len(bases) == 1:
        # What the launch itself says outweighs what was recorded when its module was loaded.
        return bases[0], () if recorded is None else ("the kernel's address differs from where its module was loaded",)
    if recorded is not None:
        return recorded, ("the kernel's address is none of the launch's function addresses",)
    if pcs:
        return min(pcs), ("the kernel's address is not recorded: the lowest PC that was seen is taken for it",)
    return None, ("the kernel's address is not recorded",)


def _sections(module: _Loaded, kernel: int, bases: Sequence[int], pcs: Sequence[int]) -> tuple[int, ...]:
    """The sections of the kernel, of what it calls, and of what ncu says it may call or was seen to run."""
    image = module.image
    assert image is not None
    found = dict.fromkeys([kernel])
    queue = [kernel]
    while queue:
        for callee in sorted(image.callees(image.sections[queue.pop()])):
            if callee not in found:
                found[callee] = None
                queue.append(callee)
    starts = set(bases)
    for index, address in module.addresses.items():
        at = bisect_left(pcs, address)
        if address in starts or (at < len(pcs) and pcs[at] < address + image.sections[index].size):
            found.setdefault(index)
    return tuple(found)


def _code(launch: LaunchProfile, pick: _Pick, damage: Sequence[str]) -> Code:
    module = pick.module
    if module is None or module.image is None:
        major, minor = launch.device.compute_capability or (0, 0)
        return Code("", major * 10 + minor, {}, (*pick.problems, *damage))
    functions: dict[str, Function] = {}
    problems = list(pick.problems)
    for position, index in enumerate(pick.sections):
        function = module.functions.get(index)
        if function is None:
            continue
        if position == 0:
            function = _replaced(function, launch.mangled, pick.address)
        elif function.address is None:
            problems.append(f"the address of {function.name}, which the kernel may call, is not recorded")
        functions[function.name] = function
    if module.functions and not functions:
        problems.append("nvdisasm printed other functions than the kernel")
    return Code(module.digest, module.image.sm, functions, (*problems, *module.lacks, *damage))


def _replaced(function: Function, name: str, address: int | None) -> Function:
    if (function.name, function.address) == (name, address):
        return function
    return Function(name, address, function.instructions, function.branch_targets, function.inner)


def _pcs(launch: LaunchProfile) -> tuple[int, ...]:
    """The absolute PCs at which the launch was seen, ascending."""
    names = [EXECUTED_PER_PC, *(state.sampled_metric for state in WarpState)]
    return tuple(sorted({pc for name in names for pc in _integers(launch.instances(name), ids=True)}))


def _integers(instances: Instances | None, *, ids: bool) -> tuple[int, ...]:
    if instances is None:
        return ()
    # Addresses come as floating-point numbers from some versions; 53 bits hold them.
    return tuple(int(x) for x in (instances.ids or () if ids else instances.values) if isinstance(x, int | float))
