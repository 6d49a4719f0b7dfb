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
