"""``cortiq repair``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.operations import append, base, state_of
from cortiq.cli.main import main
from cortiq.container import open_single


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return base(tmp_path / "model.cmf")


def damage(path: Path, at: int, nbytes: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + nbytes] = bytes(nbytes)
    path.write_bytes(data)


def test_whole(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", str(path)]) == 0
    assert capsys.readouterr().out == "nothing to repair: the file opens\n"


def test_what_is_lost(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state_of(path)
    append(path)
    with open_single(path) as file:
        at = file.envelope.header.offset
    damage(path, at, 10)
    assert main(["info", str(path)]) == 4
    assert "cortiq repair" in capsys.readouterr().err
    assert main(["repair", str(path)]) == 0
    repaired, lost = capsys.readouterr().out.splitlines()
    assert repaired.startswith("repaired: HashMismatch.header")
    assert lost.startswith("lost      add 2 tensors")
    assert state_of(path) == before


def test_damaged_tensors_end_with_4(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_single(path) as file:
        name = next(iter(file))
        at = file.envelope.data.offset + file.tensors[name].off
    damage(path, at, 100)
    damage(path, 0, 128)
    assert main(["repair", str(path), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["repaired"] is True
    assert document["problem"] == "InvalidMagic.magic"
    assert document["damaged"] == [name]
    damage(path, 0, 128)
    assert main(["repair", str(path)]) == 4
    assert f"damaged   {name}" in capsys.readouterr().out


def test_nothing_left_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.cmf"
    path.write_bytes(bytes(1000))
    assert main(["repair", str(path)]) == 3
    assert "no version of the file can be read" in capsys.readouterr().err
