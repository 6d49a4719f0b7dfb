"""Commands on a URL: which read it, how little, and which refuse it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import base
from builders.range_server import RangeServer, status, whole_file
from builders.sparse import sparse_model
from cortiq.cli.main import main

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return base(tmp_path / "model.cmf")


@pytest.fixture
def server(model: Path) -> Iterator[RangeServer]:
    with RangeServer(model) as running:
        yield running


@pytest.mark.parametrize("arguments", [["info"], ["info", "--tensors"], ["info", "--json"], ["verify", "--quick"]])
def test_600_mb_are_told_of_by_less_than_a_hundredth(arguments: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = sparse_model(tmp_path / "large.cmf")
    size = path.stat().st_size
    assert size > 600_000_000
    with RangeServer(path) as server:
        assert main([*arguments, server.url]) == 0
        assert len(server.asked) <= 3
        assert server.sent < size / 2000
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["info", "--json"], ["info", "--tensors"], ["masks"], ["masks", "--json"], ["skill", "list", "--json"]],
    ids=" ".join,
)
def test_the_same_words_as_of_a_local_file(
    arguments: list[str], server: RangeServer, model: Path, capsys: Capture
) -> None:
    assert main([*arguments, server.url]) == 0
    remote = capsys.readouterr().out
    assert main([*arguments, str(model)]) == 0
    assert remote.replace(server.url, str(model)) == capsys.readouterr().out


def test_verify_reads_the_head(server: RangeServer, capsys: Capture) -> None:
    assert main(["verify", "--quick", server.url]) == 0
    assert "whether it is signed was not asked" in capsys.readouterr().out
    assert main(["verify", "--quick", "--json", server.url]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["ok"], document["signature"]) == (server.url, True, None)


def test_story(server: RangeServer, capsys: Capture) -> None:
    assert main(["story", server.url]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{server.url}\n")
    assert "signature lies beside it was not asked" in " ".join(out.split())


def test_diff(server: RangeServer, model: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["diff", str(model), server.url]) == 0
    assert capsys.readouterr().out.endswith("no difference\n")
    other = two_layers().save(tmp_path / "other.cmf")
    assert main(["diff", server.url, str(other), "--json"]) == 5
    removed = json.loads(capsys.readouterr().out)["tensors"]["removed"]
    assert [entry["name"] for entry in removed] == ["w.x", "w.y", "w.m", "skill.a.w.x"]


def test_diff_compares_values_when_asked(tmp_path: Path, capsys: Capture) -> None:
    a, changed = two_layers().save(tmp_path / "a.cmf"), two_layers()
    changed.tensors[4] = replace(changed.tensors[4], payload=bytes(96 * 64 * 4))
    b = changed.build().save(tmp_path / "b.cmf")
    with RangeServer(b) as server:
        assert main(["diff", str(a), server.url]) == 5
        assert "relative error" not in capsys.readouterr().out
        assert main(["diff", str(a), server.url, "--values"]) == 5
        assert "relative error" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["run"],
        ["ppl", "-f", __file__],
        ["bench"],
        ["log"],
        ["undo"],
        ["compact"],
        ["repair"],
        ["edit", "--set", "a=1"],
        ["sign", "--key", "none"],
        ["requant", "-o", "out.cmf"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_need_the_file_here(arguments: list[str], server: RangeServer, capsys: Capture) -> None:
    command, *options = arguments
    rest = ["hello"] if command == "run" else []
    assert main([command, *options, server.url, *rest]) == 2
    err = capsys.readouterr().err
    assert "UsageError.remote" in err
    assert "download it first" in err
    assert not server.asked


def test_exit_codes(server: RangeServer, capsys: Capture) -> None:
    server.always = status(404)
    assert main(["info", server.url]) == 9
    assert "NetworkError.not_found" in capsys.readouterr().err
    server.always = whole_file
    assert main(["info", server.url]) == 9
    assert "download the file first" in capsys.readouterr().err
    assert main(["info", "hf://org/repo"]) == 2
    assert "hf://organization/repository/file.cmf" in capsys.readouterr().err


def test_a_damaged_header_is_no_valid_file(model: Path, capsys: Capture) -> None:
    content = bytearray(model.read_bytes())
    content[4] = 3
    model.write_bytes(content)
    with RangeServer(model) as server:
        assert main(["info", server.url]) == 7
        assert server.url in capsys.readouterr().err
