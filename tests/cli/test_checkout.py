"""``cortiq checkout``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.operations import base
from cortiq.cli.main import main


def test_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = base(tmp_path / "model.cmf")
    assert main(["checkout", str(path), "1"]) == 0
    assert capsys.readouterr().out == "now at version 1\n"
    assert main(["checkout", str(path), "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2
    for number in ("9", "0", "x"):
        assert main(["checkout", str(path), number]) == 2
        assert capsys.readouterr().err
