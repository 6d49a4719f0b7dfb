"""``cortiq merge``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.sets import single, written_set
from cortiq.cli.main import main


def test_the_bytes_of_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    before = (tmp_path / "m.cmf").read_bytes()
    (tmp_path / "m.cmf").unlink()
    assert main(["merge", str(paths[2])]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'm.cmf'}\n"
    assert (tmp_path / "m.cmf").read_bytes() == before
    assert main(["merge", str(paths[0]), "-o", str(tmp_path / "n.cmf"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["bytes"]) == (str(tmp_path / "n.cmf"), len(before))


def test_an_existing_file_is_replaced_by_force_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    assert main(["merge", str(paths[0])]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["merge", str(paths[0]), "--force"]) == 0
    assert main(["merge", str(paths[0]), "--force", "-o", str(paths[3])]) == 2
    assert "the same" in capsys.readouterr().err
    assert main(["merge", str(paths[0]), "-o", str(tmp_path / "z-00001-of-00001.cmf")]) == 2
    assert "shard_name" in capsys.readouterr().err


def test_all_names_at_once_write_nothing(tmp_path: Path) -> None:
    paths = written_set(tmp_path).paths
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["merge", *map(str, paths)]) == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_no_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", str(single(tmp_path / "m.cmf")), "-o", str(tmp_path / "n.cmf")]) == 2
    assert "no_set" in capsys.readouterr().err
    paths = written_set(tmp_path).paths
    paths[3].unlink()
    assert main(["merge", str(paths[0]), "--force"]) == 3
    assert paths[3].name in capsys.readouterr().err
