"""Documents say what is there, and the project speaks of itself alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cortiq"
# Folders of one machine. Assembled, so that this file does not match itself.
FOREIGN = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(("work", "root", "home", "mnt")) + r")/\w")


def tracked() -> list[Path]:
    """Files of the project: what version control lists, else everything that is no build product."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return [ROOT / name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]
    skipped = {"build", "dist", ".venv", ".git", "__pycache__"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts)]


def test_structure_lists_every_package() -> None:
    text = (ROOT / "docs" / "structure.md").read_text()
    packages = {p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("__init__.py")} - {"."}
    missing = {name for name in packages if not re.search(rf"^\W*`?{re.escape(name)}/", text, re.M)}
    assert not missing


def test_structure_lists_nothing_that_is_gone() -> None:
    text = (ROOT / "docs" / "structure.md").read_text()
    listed = re.findall(r"^`?([a-z_/]+)/`? ", text, re.M)
    assert listed
    assert not [name for name in listed if not ((SOURCE / name).is_dir() or (ROOT / name).is_dir())]


@pytest.mark.parametrize("name", ["layout", "operator", "family", "command"])
def test_howto_names_existing_paths(name: str) -> None:
    text = (ROOT / "docs" / "howto" / f"{name}.md").read_text()
    paths = [p for p in re.findall(r"`((?:src|csrc|tests|docs)/[\w./-]+)`", text) if "<" not in p]
    assert paths
    assert not [p for p in paths if not (ROOT / p).exists()]


def test_no_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        if path.is_relative_to(ROOT / "tests" / "data"):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in FOREIGN.finditer(text)]
    assert not found
