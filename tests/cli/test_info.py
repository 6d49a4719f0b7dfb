"""``cortiq info``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import two_layers
from cortiq.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "container"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


def test_document(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(model), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    built = two_layers()
    assert document["schema_version"] == 1
    assert document["size"] == model.stat().st_size
    assert document["arch"]["hidden_size"] == built.header["arch"]["hidden_size"]
    assert document["tensors"]["count"] == len(built.tensors)
    assert document["tensors"]["bytes"] == sum(len(tensor.payload) for tensor in built.tensors)
    assert sum(kind["tensors"] for kind in document["tensors"]["dtypes"]) == len(built.tensors)
    assert document["hashes"]["directory"] == f"{built.get('dir_hash'):016x}"
    assert "list" not in document["tensors"]
    assert document["masks"] == {"default_task": "general", "names": ["general", "code"]}
    assert document["sparse_index"] == {"entries": 1}
    assert (document["skills"], document["standalone_skill"]) == ([], False)


def test_tensor_list(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(model), "--tensors", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["tensors"]["list"]
    assert [(r["name"], tuple(r["shape"])) for r in records] == [(t.name, t.shape) for t in two_layers().tensors]
    content = model.read_bytes()
    for record, tensor in zip(records, two_layers().tensors, strict=True):
        assert content[record["offset"] : record["offset"] + record["bytes"]] == tensor.payload


def test_tensor_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(model), "--tensors"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["tensor", "dtype", "shape", "offset", "bytes", "hash64"]
    assert [row.split()[0] for row in rows] == [tensor.name for tensor in two_layers().tensors]


def test_words(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(model)]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert {line.split()[0] for line in out.splitlines()} >= {
        "file",
        "model",
        "shape",
        "tensors",
        "tokenizer",
        "hash64",
    }


def test_skills_and_masks_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(DATA / "grown-1.cmf")]) == 0
    assert "sql (6 tensors)" in capsys.readouterr().out
    assert main(["info", str(DATA / "loop.skill.cmf")]) == 0
    out = capsys.readouterr().out
    assert "specialist; default task specialist" in out
    assert "4 entries" in out
    assert "not a model" in out


def test_control_characters_of_a_file_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().with_header(provenance={"tool": "x\x1b[2J"}).save(tmp_path / "model.cmf")
    assert main(["info", str(path), "--color", "never"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "x\\x1b[2J" in out


def test_invalid_file_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.cmf"
    path.write_bytes(b"GGUF" + bytes(200))
    assert main(["info", str(path)]) == 3
    out, err = capsys.readouterr()
    assert not out
    assert "InvalidMagic" in err


def test_damaged_directory_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = two_layers()
    path = built.put(built.record(0) + 48, b"\1").save(tmp_path / "model.cmf")
    assert main(["info", str(path)]) == 4
    assert "HashMismatch.directory" in capsys.readouterr().err


def test_unknown_feature_ends_with_7(tmp_path: Path) -> None:
    path = two_layers().set("features", 1 | 1 << 20).save(tmp_path / "model.cmf")
    assert main(["info", str(path)]) == 7
