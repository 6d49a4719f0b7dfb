"""``cortiq masks``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders.cmf import two_layers
from cortiq.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "container"


def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["masks", str(path)]) == 0
    out, err = capsys.readouterr()
    assert not err
    head, *rows = out.splitlines()
    assert head.split()[:3] == ["mask", "role", "sparsity"]
    assert [line.split() for line in rows] == [
        ["general", "default", "0%", "0.0%", "0.0%", "-", "2/2", "unmeasured"],
        ["code", "normal", "0%", "4.2%", "0.0%", "-", "2/2", "unmeasured"],
    ]


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["masks", str(DATA / "loop.skill.cmf"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["default_task"] == "specialist"
    (mask,) = document["masks"]
    assert (mask["name"], mask["task_id"], mask["priority"]) == ("specialist", 1, "Primary")
    assert (mask["active_layers"], mask["num_layers"], mask["restricts"]) == (4, 4, True)
    assert mask["inactive"]["ffn"] == pytest.approx(mask["sparsity"], abs=1e-6)
    assert mask["quality"] is None


def test_no_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = replace(two_layers(), masks=b"", index=b"", features=1, data=bytearray()).build()
    path = made.save(tmp_path / "model.cmf")
    assert main(["masks", str(path)]) == 0
    assert "no masks" in capsys.readouterr().out
    assert main(["masks", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["masks"] == []


def test_a_default_without_a_mask_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = two_layers()
    masks = made.masks.replace(b'"name": "general"', b'"name": "\\u001b."', 1)
    path = replace(made, masks=masks, data=bytearray()).build().save(tmp_path / "model.cmf")
    assert main(["masks", str(path), "--color", "never"]) == 0
    out, err = capsys.readouterr()
    assert "'general' has no mask" in err
    assert "\x1b" not in out
    assert "\\x1b." in out


def test_a_damaged_section_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = replace(two_layers(), masks=b"\1\0\0\0", data=bytearray()).build().save(tmp_path / "model.cmf")
    assert main(["masks", str(path)]) == 3
    assert "Bounds.mask_count" in capsys.readouterr().err


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "mask.json"
    path.write_text('{"layer_gates": [1, 0], "metadata": {"description": "half"}}')
    return str(path)


def test_add_and_remove(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    size = path.stat().st_size
    assert main(["masks", "add", str(path), "half", "--from", source]) == 0
    out, err = capsys.readouterr()
    grown = path.stat().st_size - size
    assert out == f"added the mask half: 3 in the file, {grown} bytes appended\n"
    assert not err
    assert main(["masks", str(path), "--json"]) == 0
    assert [m["name"] for m in json.loads(capsys.readouterr().out)["masks"]] == ["general", "code", "half"]
    assert main(["masks", "add", str(path), "half", "--from", source]) == 2
    assert "--replace" in capsys.readouterr().err
    assert main(["masks", "add", str(path), "half", "--from", source, "--replace", "--default", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["replaced"], document["masks"]) == ("half", True, 3)
    assert main(["masks", "remove", str(path), "half"]) == 2
    assert "UsageError.mask_used" in capsys.readouterr().err
    assert main(["masks", "remove", str(path), "half", "--default", "general"]) == 0
    assert capsys.readouterr().out.startswith("removed the mask half, ")
    assert main(["masks", "remove", str(path), "code", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "code"


def test_a_file_is_listed_whatever_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(two_layers().save(tmp_path / "add"))
    for arguments in ([path], ["list", path], ["--json", path], ["-q", path]):
        assert main(["masks", *arguments]) == 0
        assert "general" in capsys.readouterr().out


def test_without_a_command_it_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["masks"]) == 0
    out, err = capsys.readouterr()
    assert "Usage: cortiq masks " in out
    assert all(name in out for name in ("list", "add", "remove"))
    assert not err


def test_a_source_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["masks", "add", str(path), "x"]) == 2
    assert "--from" in capsys.readouterr().err
    assert main(["masks", "add", str(path), "x", "--from", str(tmp_path / "none")]) == 1
    (tmp_path / "bad.json").write_text('{"layer_gates": [1]}')
    assert main(["masks", "add", str(path), "x", "--from", str(tmp_path / "bad.json")]) == 1
    assert "SourceError.mask" in capsys.readouterr().err
