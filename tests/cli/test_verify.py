"""``cortiq verify``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import two_layers
from cortiq.cli.main import main


def test_a_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["verify", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "ok"
    assert not err


def damaged(folder: Path) -> Path:
    built = two_layers()
    at = built.get("data_off") + built.get_record(0, "off")
    return built.put(at, bytes([built.data[at] ^ 1])).save(folder / "model.cmf")


def test_damage_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(damaged(tmp_path))]) == 4
    out = capsys.readouterr().out
    assert "HashMismatch" in out
    assert str(two_layers().tensors[0].name) in out
    assert out.splitlines()[-1] == "1 problems"


def test_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(damaged(tmp_path)), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["ok"] is False
    (problem,) = document["problems"]
    assert problem["kind"].startswith("HashMismatch")
    assert problem["tensor"] == two_layers().tensors[0].name
    assert document["bytes"] > 0


def test_absent_hashes_are_told_and_refused_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().set("dir_hash", 0).save(tmp_path / "model.cmf")
    assert main(["verify", str(path)]) == 0
    assert "unhashed" in capsys.readouterr().out
    assert main(["verify", str(path), "--require-hashes"]) in (3, 4)
