"""``cortiq edit``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import two_layers
from cortiq.cli.main import main
from cortiq.container import open_single
from cortiq.container.locking import InPlace, LockedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


def test_fields(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages }}!")
    before = path.stat().st_size
    arguments = ["--set", f"tokenizer_config.chat_template=@{tmp_path}/chat.jinja", "--set", "n=[1, 2]"]
    assert main(["edit", str(path), *arguments, "--unset", "provenance.tool"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path.stat().st_size - before} bytes appended\n"
    assert not err
    with open_single(path) as file:
        fields = file.header.to_dict()
    assert fields["tokenizer_config"]["chat_template"] == "{{ messages }}!"
    assert fields["n"] == [1, 2]
    assert fields["provenance"] == {}


def test_nothing_changed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["edit", str(path), "--set", "provenance.tool=test", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changed"] is False
    assert document["appended_bytes"] == 0
    assert main(["edit", str(path), "--set", "provenance.tool=test"]) == 0
    assert capsys.readouterr().out == "unchanged: the header says so already\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "nothing to do"),
        (["--set", "x"], 2, "name=value"),
        (["--set", "version=3"], 2, "follows from the content"),
        (["--unset", "none"], 2, "no such field"),
        (["--set", "arch.num_layers=0"], 3, "num_layers"),
        (["--set", "x=@none.txt"], 1, "none.txt"),
    ],
)
def test_refusals(path: Path, arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert main(["edit", str(path), *arguments]) == code
    assert told in capsys.readouterr().err
    assert path.read_bytes() == before


def test_in_place_options(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link, signature = tmp_path / "link.cmf", tmp_path / "model.cmf.sig"
    link.symlink_to(path)
    signature.write_text("{}")
    assert main(["edit", str(link), "--set", "a=1"]) == 2
    assert "--in-place-anyway" in capsys.readouterr().err
    assert main(["edit", str(link), "--set", "a=1", "--in-place-anyway"]) == 2
    assert "--drop-signature" in capsys.readouterr().err
    assert main(["edit", str(link), "--set", "a=1", "--in-place-anyway", "--drop-signature"]) == 0
    assert not signature.exists()
    with LockedFile(path, InPlace()):
        assert main(["edit", str(path), "--set", "a=2"]) == 1
        assert "--wait" in capsys.readouterr().err
        assert main(["edit", str(path), "--set", "a=2", "--no-lock"]) == 0
    assert main(["edit", str(path), "--set", "a=3", "--wait"]) == 0
