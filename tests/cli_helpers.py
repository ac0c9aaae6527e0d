"""What the tests of commands share: running one in this process, and the JSON schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from profiler import cli

ROOT = Path(__file__).parent.parent
BYTE, WIDE = (ROOT / "tests" / "captures" / "trial" / f"q6k_{x}_loads.sm90.ncu-rep" for x in ("byte", "wide"))
CAPTURES = Path(__file__).parent / "captures"
SCHEMAS = {p.name: json.loads(p.read_text()) for p in (ROOT / "profiler" / "schemas").glob("*.json")}


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run the command in this process, through the same entry point as the console script."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cyinst", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


def validate(document: dict[str, Any]) -> None:
    registry: Any = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values())
    schema = SCHEMAS[document["schema"].replace("/", "-") + ".json"]
    validator = jsonschema.Draft202012Validator(schema, registry=registry)
    errors = [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(document)]
    assert not errors, errors[:5]


def widest(text: str) -> int:
    return max(len(line.rstrip("\n")) for line in text.splitlines())
