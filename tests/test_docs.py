import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.cli import COMMANDS

ROOT = Path(__file__).parent.parent
FOLDERS = ("kernels", "profiler/demo", "tests/captures")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / folder / "README.md" for folder in FOLDERS),
]


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_region_file_of_the_page_names_regions_of_the_bundled_capture(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "hot.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"`(cyinst hot [^`]+ --regions my\.toml)`", page)
    (tmp_path / "my.toml").write_text(text)
    words = [str(tmp_path / w) if w == "my.toml" else w for w in command.split()[1:]]
    done = subprocess.run(
        [sys.executable, "-m", "profiler.cli", *words, "--format", "json"], cwd=ROOT, capture_output=True, check=True
    )
    hot = json.loads(done.stdout)
    executed = {r["name"]: r["executed"] for r in hot["regions"]}
    assert hot["region_source"] == "region file"
    assert set(executed) == {"weights", "scale loads", "(unmarked)"}
    # For each 16 weights: two loads of scales (d, sc) against 32 of single bytes, and what is done with those.
    assert executed["weights"] > 16 * executed["scale loads"] > 0


def test_every_exit_code_is_in_the_readme() -> None:
    from profiler import errors

    readme = (ROOT / "README.md").read_text()
    kinds = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CyinstError)]
    for kind in kinds:
        if kind is not errors.CyinstError:
            assert f"\n| {kind.exit_code} |" in readme
