"""``cortiq log``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import tensor
from cortiq.cli.main import main
from cortiq.container import grow
from cortiq.container.recovery import RECORD_NBYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = two_layers().save(tmp_path / "model.cmf")
    grow(made, add=[tensor("a")], what="add\x1b[31m a")
    return made


def test_versions(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", str(path)]) == 0
    capsys.readouterr()
    assert main(["log", str(path)]) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["version", "made", "what"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert rows[0].endswith("the oldest one known")
    assert rows[1].endswith(r"add\x1b[31m a")
    assert rows[2].endswith("back to version 1")
    assert not err


def test_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is True
    assert [version["number"] for version in document["versions"]] == [1, 2]
    assert document["versions"][1]["what"] == "add\x1b[31m a"


def test_lost_notes_are_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(path.read_bytes())
    data[-RECORD_NBYTES - 20] ^= 1
    path.write_bytes(data)
    assert main(["log", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "not noted" in out
    assert "damaged" in err
