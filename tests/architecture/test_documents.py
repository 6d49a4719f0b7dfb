"""Documents say what is there, and the project speaks of itself alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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

    def ours(path: Path) -> bool:
        folders = path.relative_to(ROOT).parts[:-1]
        hidden = any(part.startswith(".") and part != ".ci" for part in folders)
        return not hidden and not {"build", "dist", "__pycache__"} & set(folders) and path.suffix != ".so"

    return [path for path in ROOT.rglob("*") if path.is_file() and ours(path)]


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


def test_generated_pages_are_current() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_docs.py", "--check"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr


def test_readme_starts_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first, second = re.findall(r"^```sh\n(.*?)\n```$", text, re.M | re.S)[:2]
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/cortiq run smollm2 ")
    assert second == '.venv/bin/pip install ".[test]" && .venv/bin/pytest'


def test_readme_example_runs(
    real_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(code.splitlines()) <= 12
    (tmp_path / "smollm2.cmf").symlink_to(real_model)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert out.startswith("576 273 ")  # hidden size of the model the example names, its tensors and their digests
    assert " length" in out or " stop" in out  # what a model of this size says of mmap is its own affair


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
