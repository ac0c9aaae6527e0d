"""Reports and launches that no profiler wrote, for tests of how modules, kernels and addresses find each other."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from profiler import container
from profiler.model import Instances, LaunchProfile, Metric

EXECUTED, FUNCTION_PCS = "inst_executed", "launch__function_pcs"


def a_report(modules: Sequence[dict[str, Any]], kernels: Sequence[tuple[str, int]]) -> bytes:
    """A container with one block: SourceData of these modules, KernelResults (name, reference)."""
    classes = container._message_classes()
    entries = []
    for module in modules:
        entry = classes["SourceData"](reference=module["reference"], sm_version=9 << 16)
        if "binary" in module:
            entry.binary = module["binary"]
        for name, address, symbol in module.get("loaded", ()):
            entry.relocation.functions.add(symbol=name.encode(), address=address, symbol_index=symbol)
        entries.append(entry)
    for name, reference in kernels:
        result = classes["KernelResult"](mangled=name.encode())
        result.source.reference = reference
        entries.append(result)
    payload = b"".join(struct.pack("<I", len(raw)) + raw for raw in (e.SerializeToString() for e in entries))
    header = classes["Block"](sources=len(modules), results=len(kernels), size=len(payload)).SerializeToString()
    return container.MAGIC + struct.pack("<I", 0) + struct.pack("<I", len(header)) + header + payload


def a_launch(
    like: LaunchProfile, mangled: str, index: int = 0, bases: Sequence[int] = (), pcs: Sequence[int] = ()
) -> LaunchProfile:
    metrics = {}
    if bases:
        metrics[FUNCTION_PCS] = Metric(FUNCTION_PCS, "", None, Instances(tuple(bases), tuple(range(len(bases)))))
    if pcs:
        metrics[EXECUTED] = Metric(EXECUTED, "inst", None, Instances((1,) * len(pcs), tuple(pcs)))
    return replace(like, index=index, mangled=mangled, metrics=metrics)


def only(data: bytes, index: int) -> bytes:
    """A report with one of its results. Each has a block of its own here; what the others' headers hold stays."""
    block = container._message_classes()["Block"]
    at = 8 + struct.unpack_from("<I", data, 4)[0]
    parts, results = [data[:at]], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        header = block.FromString(data[at + 4 : at + 4 + size])
        at += 4 + size
        payload = data[at : at + header.size]
        at += header.size
        if header.results:
            if results != index:
                header.results, header.size, payload = 0, 0, b""
            results += 1
        raw = header.SerializeToString()
        parts += [struct.pack("<I", len(raw)), raw, payload]
    return b"".join(parts)
