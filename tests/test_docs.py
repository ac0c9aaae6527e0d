import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.cli import COMMANDS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_quoted_outputs_are_what_the_commands_print() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/write_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_documented() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text()
    readme = (ROOT / "README.md").read_text()
    for name in COMMANDS:
        assert f"## `cyinst {name}`" in reference
        assert name in readme


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_every_exit_code_is_in_the_readme() -> None:
    from profiler import errors

    readme = (ROOT / "README.md").read_text()
    kinds = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CyinstError)]
    for kind in kinds:
        if kind is not errors.CyinstError:
            assert f"\n| {kind.exit_code} |" in readme
