"""The .ncu-rep container: bytes -> capture conditions, whether the file is whole, and the machine code in it.

Format as documented in Nsight Compute's Customization Guide ("Report File Format"): ``NVR\\0``, a file header, then
blocks of header + payload; integers are little endian, headers are protobuf messages. Only the fields that cyinst
uses are declared here; everything else is skipped by protobuf.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.model import UNKNOWN, Conditions, Setting

MAGIC = b"NVR\x00"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Bytes that a compressed report may unpack to: a damaged one must not ask for all memory.
MOST = 4 << 30

# message -> field -> (number, type); a type that is itself a key is a message, * marks a repeated field.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Version": {"provider": (1, "bytes"), "version": (2, "bytes")},
    "Settings": {"clock_control": (8, "bytes"), "import_source": (10, "bool"), "replay_mode": (11, "bytes")},
    "Session": {
        "created": (2, "uint64"), "versions": (8, "*Version"), "settings": (10, "Settings"), "cmdline": (11, "bytes"),
    },
    "Block": {
        "sources": (1, "uint32"), "results": (2, "uint32"), "session": (3, "Session"), "size": (5, "uint32"),
        "ranges": (7, "uint32"), "cmdlists": (8, "uint32"), "graphs": (9, "uint32"),
    },
    "Clock": {"requested": (1, "bool"), "executed": (2, "bool")},
    # Names are read as bytes: a foreign compiler's symbol need not be valid UTF-8.
    "File": {"name": (1, "bytes"), "content": (2, "bytes")},
    "Files": {"files": (1, "*File")},
    "LoadedFunction": {"symbol": (1, "bytes"), "address": (2, "uint64"), "symbol_index": (3, "uint32")},
    "RelocationData": {"functions": (1, "*LoadedFunction")},
    "SourceData": {
        "reference": (1, "uint64"), "binary": (4, "bytes"), "sm_version": (6, "uint32"), "files": (8, "Files"),
        "relocation": (9, "RelocationData"),
    },
    "KernelResult": {
        "mangled": (5, "bytes"), "source": (15, "SourceData"), "clock": (25, "Clock"), "driver": (35, "float"),
    },
    "RangeResult": {"clock": (12, "Clock"), "sources": (15, "*uint64"), "driver": (21, "float")},
    "CmdlistResult": {"clock": (13, "Clock"), "sources": (17, "*uint64"), "driver": (25, "float")},
    "GraphResult": {"clock": (13, "Clock"), "sources": (17, "*uint64"), "driver": (23, "float")},
}  # fmt: skip


def _message_classes() -> dict[str, Any]:
    # Imported here: the process that waits for the reader has no use for protobuf, and it takes 60 ms.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="cyinst/container.proto", package="cyinst", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, (number, kind) in fields.items():
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            entry = message.field.add(name=label, number=number)
            entry.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _MESSAGES:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".cyinst.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"cyinst.{n}")) for n in _MESSAGES}


@dataclass(frozen=True, slots=True)
class Container:
    """What the walk over the blocks found. ``locked`` has one entry per result, in file order.

    ``problems`` is empty for a whole file; the walk stops at the first break.
    """

    conditions: Conditions
    locked: tuple[bool | None, ...] = ()
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """Where a function of a module was in memory. The symbol index tells apart functions of the same name."""

    name: str
    address: int
    symbol: int


@dataclass(frozen=True, slots=True)
class Module:
    """One code module of a report, as the driver loaded it.

    ``reference`` is the key by which results name it, None for a cubin found without its container entry. ``binary``
    is the cubin, an ELF image. ``sm`` is the architecture of the device that it was loaded on (90), None where not
    recorded. ``loaded`` are the functions whose address is recorded (ncu 2022.2 and later). ``sources`` is
    {file name: content} of embedded source files.
    """

    reference: int | None
    binary: bytes
    sm: int | None
    loaded: tuple[LoadedFunction, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def functions(self) -> dict[str, tuple[int, int]]:
        """{mangled name: (address, symbol index)}; of several functions of one name, the first."""
        return {f.name: (f.address, f.symbol) for f in reversed(self.loaded)}


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a report and the modules it names; ``mangled`` is None for a range, a graph or a command list."""

    mangled: str | None
    references: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CodeIndex:
    """The code modules of a report, and its results in file order. ``problems`` are empty for a whole file."""

    modules: tuple[Module, ...]
    results: tuple[Result, ...]
    problems: tuple[str, ...] = ()


def read_modules(data: bytes) -> CodeIndex:
    """Read the code modules of a report's bytes, and which result used which.

    Damage becomes an entry of ``problems``, never an exception; what was read before it is returned.
    """
    if data[:4] != MAGIC:
        return CodeIndex((), (), ("the file does not start with Nsight Compute's NVR mark",))
    from google.protobuf.message import DecodeError

    classes = _message_classes()
    entries: dict[int, list[Any]] = {}
    results: list[Result] = []
    problems: tuple[str, ...] = ()
    try:
        for kind, chunk in _walk(data, classes["Block"], sources=True):
            if kind == "Block":
                continue
            message = classes[kind].FromString(chunk)
            if kind == "SourceData":
                entries.setdefault(message.reference, []).append(message)
            elif kind == "KernelResult":
                named = (message.source.reference,) if message.source.HasField("reference") else ()
                results.append(Result(_text(message.mangled), named))
            else:
                results.append(Result(None, tuple(message.sources)))
    except (struct.error, DecodeError, ValueError) as error:
        problems = (_breakage(error),)
    modules = tuple(_module(reference, parts) for reference, parts in entries.items())
    return CodeIndex(modules, tuple(results), problems)


def _module(reference: int, parts: list[Any]) -> Module:
    # The binary comes with the first entry; a later one adds the functions that were loaded since.
    version = next((p.sm_version for p in parts if p.sm_version), 0)
    return Module(
        reference=reference,
        binary=next((p.binary for p in parts if p.binary), b""),
        sm=(version >> 16) * 10 + (version & 0xFFFF) if version else None,
        loaded=tuple(
            LoadedFunction(_text(f.symbol), f.address, f.symbol_index) for p in parts for f in p.relocation.functions
        ),
        sources={_text(f.name): _text(f.content) for p in parts for f in p.files.files},
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def unpacked(data: bytes) -> bytes | None:
    """Return the plain bytes of a report; None for a compressed one (.ncu-repz) that cannot be unpacked here.

    That needs Python 3.14 or the package zstandard, and a whole file.
    """
    if data[:4] != ZSTD_MAGIC:
        return data
    try:
        unpacker = _unpacker()
        parts: list[bytes] = []
        size = 0
        for start in range(0, len(data), 1 << 20):
            parts.append(unpacker.decompress(data[start : start + (1 << 20)]))
            size += len(parts[-1])
            if size > MOST:
                return None
        return b"".join(parts) if unpacker.eof else None
    except Exception:  # no such package, its errors for damage, MemoryError
        return None


def _unpacker() -> Any:
    try:
        from compression import zstd
    except ImportError:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()
    return zstd.ZstdDecompressor()


def read_container(data: bytes) -> Container:
    """Walk a report's bytes and return its conditions; damage becomes an entry of ``problems``, never an exception.

    Of a compressed report that cannot be unpacked nothing is known, and nothing is said to be damaged.
    """
    whole = unpacked(data)
    if whole is None:
        return Container(Conditions(), problems=())
    data = whole
    if data[:4] != MAGIC:
        return Container(Conditions(), problems=("the file does not start with Nsight Compute's NVR mark",))
    from google.protobuf.message import DecodeError

    classes = _message_classes()
    facts: dict[str, Any] = {"versions": {}}
    locked: list[bool | None] = []
    problems: tuple[str, ...] = ()
    try:
        for kind, chunk in _walk(data, classes["Block"]):
            if kind == "Block":
                _note_session(chunk.session, facts)
            else:
                message = classes[kind].FromString(chunk)
                if message.driver:
                    facts["driver"] = message.driver
                clock = message.clock
                locked.append(bool(clock.executed or clock.requested) if message.HasField("clock") else None)
    except (struct.error, DecodeError, ValueError) as error:
        problems = (_breakage(error),)
    return Container(_conditions(facts, locked), tuple(locked), problems)


def _breakage(error: Exception) -> str:
    detail = str(error) if type(error) is ValueError else "its structure breaks off"
    return f"the report is truncated or damaged: {detail}"


def _walk(data: bytes, block_class: Any, sources: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield ("Block", header) and (message name, payload bytes) in file order; code only if ``sources`` asks for it."""
    position = 8 + _u32(data, 4)
    if position > len(data):
        raise ValueError("the file header runs past the end of the file")
    while position < len(data):
        size = _u32(data, position)
        position += 4
        if position + size > len(data):
            raise ValueError(f"a block header at byte {position} runs past the end of the file")
        block = block_class.FromString(data[position : position + size])
        position += size
        yield "Block", block
        end = position + block.size
        if end > len(data):
            raise ValueError(f"a block at byte {position} needs {block.size} bytes, {len(data) - position} are there")
        entries: list[str] = []
        for name, count in (
            ("SourceData", block.sources),
            ("KernelResult", block.results),
            ("RangeResult", block.ranges),
            ("CmdlistResult", block.cmdlists),
            ("GraphResult", block.graphs),
        ):
            if count > block.size:
                raise ValueError(f"a block at byte {position} claims {count} entries in {block.size} bytes")
            entries += [name] * count
        for name in entries:
            size = _u32(data, position)
            position += 4
            if position + size > end:
                raise ValueError(f"an entry at byte {position} runs past its block")
            if sources or name != "SourceData":
                yield name, data[position : position + size]
            position += size
        position = end


def _u32(data: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])


def _note_session(session: Any, facts: dict[str, Any]) -> None:
    for entry in session.versions:
        facts["versions"].setdefault(_text(entry.provider), _text(entry.version))
    if session.created:
        facts.setdefault("created", session.created)
    if session.cmdline:
        facts.setdefault("cmdline", _text(session.cmdline))
    settings = session.settings
    for name in ("clock_control", "replay_mode"):
        if settings.HasField(name) and getattr(settings, name):
            facts.setdefault(name, _text(getattr(settings, name)).lower())
    if settings.HasField("import_source"):
        facts.setdefault("import_source", "yes" if settings.import_source else "no")


def _conditions(facts: dict[str, Any], locked: list[bool | None]) -> Conditions:
    versions = facts["versions"]
    ncu = versions.get("Nsight Compute Target") or versions.get("Nsight Compute")
    driver = versions.get("Display Driver Version") or (
        # A float32 of major.minor.patch: 580.159 for 580.159.04.
        f"{facts['driver']:.3f}".removesuffix("0") if "driver" in facts else None
    )
    options = parse_ncu_options(facts["cmdline"]) if "cmdline" in facts else None
    clock = _setting("clock_control", "--clock-control", facts, options)
    known = {state for state in locked if state is not None}
    if len(known) == 1 and clock.source != "command line":
        # Each result records whether the lock was requested; that is firmer than a default that was only assumed.
        clock = Setting("base" if known.pop() else "none", "report")
    return Conditions(
        ncu_version=ncu.split(" ")[0] if ncu else None,
        driver_version=driver,
        cuda_version=versions.get("CUDA Version"),
        created=facts.get("created"),
        command_line=facts.get("cmdline"),
        clock_control=clock,
        cache_control=_setting("cache_control", "--cache-control", facts, options),
        replay_mode=_setting("replay_mode", "--replay-mode", facts, options),
        import_source=_setting("import_source", "--import-source", facts, options),
    )


_DEFAULTS = {
    "--clock-control": "base",
    "--cache-control": "all",
    "--replay-mode": "kernel",
    "--import-source": "no",
}
_YES_NO = {"1": "yes", "on": "yes", "true": "yes", "0": "no", "off": "no", "false": "no"}


def _setting(name: str, option: str, facts: dict[str, Any], options: dict[str, str] | None) -> Setting:
    if options is not None and option in options:
        return Setting(options[option], "command line")
    if name in facts:
        return Setting(facts[name], "report")
    if options is not None:
        return Setting(_DEFAULTS[option], "ncu default")
    return UNKNOWN


def parse_ncu_options(command_line: str) -> dict[str, str]:
    """Return the settings of ``_DEFAULTS`` that a recorded ncu command line names.

    The program's own arguments come after ncu's; an option that follows the program is not ncu's, so reading stops at
    the first word that is neither an option nor the value of one. ``--opt=value`` and ``--opt value`` are both read.
    """
    # ncu puts double quotes around words with spaces and escapes nothing.
    words = [word.replace('"', "") for word in re.findall(r'(?:"[^"]*"|\S)+', command_line)]
    found: dict[str, str] = {}
    index = 1
    while index < len(words):
        word = words[index]
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.partition("=")
        name = _full_name(name)
        if not equals and _takes_next(name) and index + 1 < len(words):
            index += 1
            value = words[index]
        if name in _DEFAULTS:
            found[name] = _YES_NO.get(value.lower(), value.lower()) if name == "--import-source" else value.lower()
        index += 1
    return found


def _full_name(name: str) -> str:
    """``--cache`` -> ``--cache-control``: ncu takes any prefix that is unambiguous."""
    if name in ("--import", "-") or len(name) < 5 or not name.startswith("--"):
        return name
    return next((known for known in _DEFAULTS if known.startswith(name)), name)


def _takes_next(name: str) -> bool:
    """Whether the next word is the value. ``-c1`` carries its own; ``-fo out`` is ``-f -o out``."""
    if name in _FLAGS:
        return False
    if name.startswith("--"):
        return True
    letters = name[1:]
    while letters and f"-{letters[0]}" in _FLAGS:
        letters = letters[1:]
    return len(letters) == 1


# ncu options that take no value (ncu --help, 2020.3 to 2025.3); every other option is followed by one.
_FLAGS = frozenset(
    "-h --help -v --version --forward-signals --call-stack --nvtx --support-32bit --null-stdin --list-sets "
    "--list-sections --section-folder-restore --list-rules --list-metrics --query-metrics --list-chips "
    "--disable-profiler-start-stop --quiet --verbose --disable-extra-suffixes -f --force-overwrite --open-in-ui --csv "
    "--print-metric-attribution --print-fp --print-rule-details --print-details-all --lockstep-kernel-launch".split()
)
