"""``cortiq compact``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.operations import base, edit, state_of
from cortiq.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return base(tmp_path / "model.cmf")


def test_in_place(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(path)
    before, state = path.stat().st_size, state_of(path)
    assert main(["compact", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes_before"] == before
    assert document["bytes_after"] == path.stat().st_size < before
    assert state_of(path) == state
    assert main(["undo", str(path)]) == 2
    assert "nothing to undo" in capsys.readouterr().err


def test_to_another_file(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "small.cmf"
    assert main(["compact", str(path), "-o", str(output)]) == 0
    assert "became" in capsys.readouterr().out
    assert main(["compact", str(path), "-o", str(output)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["compact", str(path), "-o", str(output), "--force"]) == 0
    assert state_of(output) == state_of(path)
