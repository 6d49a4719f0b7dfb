"""Header fields changed in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.cmf import two_layers
from cortiq.container import open_single, verify
from cortiq.edit.metadata import edit_header, parse_assignment
from cortiq.errors import CortiqError, Parse, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_layers().with_header(skills=[{"id": "a"}], empty=None).save(tmp_path / "model.cmf")


def fields(path: Path) -> dict[str, Any]:
    with open_single(path) as file:
        assert verify(file).ok
        return file.header.to_dict()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("license", "apache-2.0"),
        ("tokenizer_config.chat_template", "{{ x }}"),
        ("tokenizer_config.eos_token_ids", [3, 4]),
        ("tokenizer_config.eos_token_ids.0", 5),
        ("skills.0.name", "SQL"),
        ("made.on.the.way", {"a": [None, True, 1.5]}),
        ("arch.rope_theta", 5000.0),
    ],
)
def test_set(path: Path, name: str, value: object) -> None:
    before = fields(path)
    _, changed = edit_header(path, {name: value})
    assert changed
    found: Any = fields(path)
    for key in name.split("."):
        found = found[int(key) if isinstance(found, list) else key]
    assert found == value
    assert list(fields(path))[: len(before)] == list(before)


def test_unset(path: Path) -> None:
    edit_header(path, {}, ["provenance.tool", "skills.0", "empty"])
    found = fields(path)
    assert found["provenance"] == {}
    assert found["skills"] == []
    assert "empty" not in found


def test_setting_what_is_there_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    envelope, changed = edit_header(path, {"provenance.tool": "test"})
    assert not changed
    assert path.read_bytes() == before
    assert envelope.pack() == before[:128]


@pytest.mark.parametrize(
    ("set_fields", "unset", "code"),
    [
        ({"": 1}, [], "field"),
        ({"a..b": 1}, [], "field"),
        ({"format": "x"}, [], "field"),
        ({"section_hashes.vocab": "0"}, [], "field"),
        ({"digests": {}}, [], "field"),
        ({"shard.no": 1}, [], "field"),
        ({}, ["version"], "field"),
        ({}, ["none"], "field"),
        ({}, ["provenance.tool.x"], "field"),
        ({"skills.1.name": 1}, [], "field"),
        ({"skills.-1": {}}, [], "field"),
        ({"skills.²": {}}, [], "field"),
        ({"empty.x": 1}, [], "field"),
        ({"provenance.tool.x": 1}, [], "field"),
        ({"arch.num_layers": 0}, [], "arch"),
        ({"arch": 1}, [], "arch"),
        ({"tokenizer_config.eos_token_ids": [10**9]}, [], "chat"),
        ({"skills.0.base_dir_hash": "1"}, [], "skill_file"),
        ({}, ["arch.hidden_size"], "arch"),
    ],
)
def test_refusals(path: Path, set_fields: dict[str, Any], unset: list[str], code: str) -> None:
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        edit_header(path, set_fields, unset)
    assert caught.value.code == code
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=1e6", 1e6),
        ("a=x", "x"),
        ('a="1"', "1"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=[1, 2]", [1, 2]),
        ("a=null", None),
        ("a=NaN", "NaN"),
        ("a={", "{"),
    ],
)
def test_assignment(text: str, value: object) -> None:
    assert parse_assignment(text) == ("a", value)


def test_assignment_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("1\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bad.json").write_text("[1")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    assert parse_assignment(f"a.b=@{tmp_path}/chat.jinja") == ("a.b", "1\n")
    assert parse_assignment(f"a=@{tmp_path}/list.json") == ("a", [1])
    with pytest.raises(Parse):
        parse_assignment(f"a=@{tmp_path}/bad.json")
    with pytest.raises(UsageError, match="UTF-8") as caught:
        parse_assignment(f"a=@{tmp_path}/bad.txt")
    assert caught.value.code == "assignment"
    with pytest.raises(FileNotFoundError):
        parse_assignment(f"a=@{tmp_path}/none")


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_no_assignment(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_assignment(text)
    assert caught.value.code == "assignment"
