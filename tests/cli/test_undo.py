"""``cortiq undo``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.operations import base
from cortiq.cli.main import main


def test_undo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = base(tmp_path / "model.cmf")
    assert main(["edit", str(path), "--set", "a=1"]) == 0
    capsys.readouterr()
    assert main(["undo", str(path)]) == 0
    assert capsys.readouterr().out == "back to version 2\n"
    assert main(["undo", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert main(["undo", str(path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "nothing to undo" in err
