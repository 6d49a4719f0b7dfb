"""``cortiq skill``."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from builders.cmf import F16, U8, Cmf, T, header, pattern, two_layers
from builders.recorder import Recorder, install
from builders.skill_sources import folder
from cortiq.cli.main import main
from cortiq.container import open_single, skill_file
from cortiq.container.locking import InPlace, LockedFile

MIB = 1 << 20
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "container"


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


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(DATA / "llama-q8.cmf", tmp_path / "base.cmf"))


def test_add_and_remove(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = base.stat().st_size
    assert main(["skill", "add", str(base), str(DATA / "sql.skill.cmf")]) == 0
    out, err = capsys.readouterr()
    grown = base.stat().st_size - size
    assert out == f"added the skill sql: 6 tensors, 61.5 KiB; {grown} bytes appended\n"
    assert not err
    assert main(["skill", "remove", str(base), "sql"]) == 0
    assert capsys.readouterr().out.startswith("removed the skill sql: 6 tensors; ")
    assert main(["skill", "remove", str(base), "sql"]) == 2
    assert "UsageError.skill" in capsys.readouterr().err


def test_add_as_a_document(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "add", str(base), str(DATA / "sql.skill.cmf"), "--id", "x", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {key: document[key] for key in ("id", "replaced", "tensors", "bytes", "mask")} == {
        "id": "x",
        "replaced": False,
        "tensors": 6,
        "bytes": 62976,
        "mask": None,
    }
    assert main(["skill", "remove", str(base), "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"] == 6


def test_replacing_and_grown_bases(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["skill", "add", str(base), str(DATA / "sql.skill.cmf")]
    assert main(command) == 0
    assert main(command) == 2
    assert "--replace" in capsys.readouterr().err
    assert main([*command, "--replace"]) == 4
    assert "has grown" in capsys.readouterr().err
    assert main([*command, "--replace", "--force"]) == 0
    assert capsys.readouterr().out.startswith("replaced the skill sql: ")


def test_a_folder(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "s", {"model.norm.weight": np.ones(64, np.float32)})
    np.save(made / "ffn_keep.npy", np.ones((4, 160), np.bool_))
    assert main(["skill", "add", str(base), str(made)]) == 2
    assert "--id" in capsys.readouterr().err
    assert main(["skill", "add", str(base), str(made), "--id", "sql"]) == 0
    out, err = capsys.readouterr()
    assert "1 tensors, 128 B" in out
    assert "ffn_keep.npy is not used" in err
    assert main(["skill", "add", str(base), str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_export(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.cmf"
    main(["skill", "add", str(base), str(DATA / "sql.skill.cmf")])
    capsys.readouterr()
    assert main(["skill", "export", str(base), "sql", str(output)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{output}\n"
    assert "d75c93192d295a47" in err
    assert main(["skill", "export", str(base), "sql", str(output)]) == 2
    assert "exists" in capsys.readouterr().err
    arguments = ["--force", "--base", str(DATA / "llama-q8.cmf"), "--json"]
    assert main(["skill", "export", str(base), "sql", str(output), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["base_dir_hash"] == "d75c93192d295a47"
    with open_single(output) as file:
        assert skill_file(file).skill.id == "sql"


def test_somebody_else_writes(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LockedFile(base, InPlace()):
        assert main(["skill", "add", str(base), str(DATA / "sql.skill.cmf")]) == 1
        assert main(["skill", "remove", str(base), "sql"]) == 1
    assert capsys.readouterr().err.count("Busy.locked") == 2


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of 600 MiB, most of it a hole, with a matrix of 5 MiB."""
    made = Cmf(header(), [T("w", F16, (2560, 1024), bytes(5 * MIB)), T("big", U8, (64,), bytes(64))]).build()
    made.set_record(1, shape=(595 * MIB,), nbytes=595 * MIB).set("data_len", 600 * MIB).rehash()
    path = made.save(tmp_path / "large.cmf")
    os.truncate(path, made.get("data_off") + 600 * MIB)
    return path


def test_bytes_written_to_a_large_file(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(*arguments: object) -> int:
        disk = Recorder()
        install(monkeypatch, disk)
        assert main([str(argument) for argument in arguments]) == 0
        return disk.written

    made = folder(tmp_path / "s", {"w": np.ones((2560, 1024), np.float32)}, {"id": "a"})
    mask = tmp_path / "mask.json"
    mask.write_text('{"layer_gates": [1, 0]}')
    assert 5 * MIB < written("skill", "add", large, made) <= 5.5 * MIB
    for change in (
        ("edit", large, "--set", "license=x"),
        ("undo", large),
        ("masks", "add", large, "code", "--from", mask),
        ("masks", "remove", large, "code"),
        ("skill", "remove", large, "a"),
        ("undo", large),
        ("checkout", large, 1),
    ):
        assert written(*change) < 64 << 10, change


def test_the_commands_of_the_guide(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "howto" / "skills.md").read_text()
    growing, shipping = re.findall(r"^```sh\n(.*?)^```$", guide, re.M | re.S)
    (mask,) = re.findall(r"^```json\n(.*?)^```$", guide, re.M | re.S)
    assert json.loads(mask)["metadata"]["sparsity"] == 0.25
    monkeypatch.chdir(tmp_path)
    base.rename("model.cmf")
    shutil.copyfile(DATA / "sql.skill.cmf", "sql.skill.cmf")
    folder(tmp_path / "trained", {"model.norm.weight": np.ones(64, np.float32)})
    Path("code.json").write_text('{"layer_gates": [1, 1, 0, 1]}')
    codes = {line: main(shlex.split(line, comments=True)[1:]) for line in growing.splitlines()}
    assert [line for line, code in codes.items() if code] == [line for line in codes if " diff " in line]
    with open_single("model.cmf") as file:
        assert (list(file.skills), file.masks) == (["sql"], None)
    shutil.copyfile(DATA / "llama-q8.cmf", "base.cmf")
    assert main(["skill", "apply", "base.cmf", "sql.skill.cmf", "-o", "finetuned.cmf"]) == 0
    wanted = Path("finetuned.cmf").read_bytes()
    Path("sql.skill.cmf").unlink()
    export, apply = shipping.splitlines()
    assert main(shlex.split(export, comments=True)[1:]) == 0
    Path("finetuned.cmf").unlink()
    assert main(shlex.split(apply, comments=True)[1:]) == 0
    assert Path("finetuned.cmf").read_bytes() == wanted


def test_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "specialist.cmf"
    command = ["skill", "apply", str(DATA / "llama-q8.cmf"), str(DATA / "sql.skill.cmf"), "-o", str(out)]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n"
    assert "6 tensors replaced, 0 added" in captured.err
    assert main(command) == 2
    assert "UsageError.exists" in capsys.readouterr().err
    assert main([*command, "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "output": str(out),
        "replaced": 6,
        "added": 0,
    }
