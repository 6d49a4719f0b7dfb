"""``cortiq skill list``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import F16, T, pattern, two_layers
from cortiq.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "container"


def test_document_of_a_swarm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "list", str(DATA / "grown-1.cmf"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["standalone"] is None
    (skill,) = document["skills"]
    assert (skill["id"], skill["name"], skill["tensors"], skill["layers"]) == ("sql", "SQL assistant", 6, [1, 2])
    assert (skill["registered"], skill["routable"], skill["not_routable"]) == (True, True, None)
    assert skill["selection"] == {"metric": "mse", "phi_layer": 2, "rank": 2}
    assert skill["quality"]["overlaid"] == 729.754
    assert skill["bytes"] == 2 * (2 * 10560 + 10368)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "list", str(DATA / "grown-1.cmf")]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["skill", "name", "tensors", "size", "layers", "routing", "quality"]
    assert row.split()[:4] == ["sql", "SQL", "assistant", "6"]
    assert "routable" in row
    assert row.endswith("ppl 729.754, backbone 805.533")


def test_a_standalone_skill_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "list", str(DATA / "sql.skill.cmf")]) == 0
    assert "6 tensors" in (out := capsys.readouterr().out)
    assert "d75c93192d295a47" in out
    assert "no selection" in out
    assert main(["skill", "list", str(DATA / "sql.skill.cmf"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["standalone"]["base_dir_hash"] == "d75c93192d295a47"
    assert document["standalone"]["tensors"] == 6
    assert document["skills"][0]["provenance"] == {"cut_from": "donor-sql-q8.cmf", "tensors": 6}


def test_tensors_without_a_record_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = two_layers()
    own = T("skill.\u202eb.model.norm.weight", F16, (64,), pattern(128))
    path = made.with_tensors(*made.tensors, own).save(tmp_path / "model.cmf")
    assert main(["skill", "list", str(path), "--color", "never"]) == 0
    out = capsys.readouterr().out
    assert "no record" in out
    assert "\u202e" not in out
    assert main(["skill", "list", str(path), "--json"]) == 0
    (skill,) = json.loads(capsys.readouterr().out)["skills"]
    assert (skill["registered"], skill["tensors"], skill["bytes"], skill["quality"]) == (False, 1, 128, None)


def test_a_flat_backbone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["skill", "list", str(path)]) == 0
    assert "no skills" in capsys.readouterr().out


def test_without_a_command_it_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    out, err = capsys.readouterr()
    assert "Usage: cortiq skill " in out
    assert "list" in out
    assert not err


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_list(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "list", flag]) == 0
    out = capsys.readouterr().out
    assert "--json" in out
    assert "\nExamples:\n" in out


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "lst"]) == 2
    assert "Try 'cortiq skill --help' for help." in capsys.readouterr().err
