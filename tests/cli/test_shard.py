"""``cortiq shard``, and what other commands do with a set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.sets import single, whole, written_set
from builders.tiny import Tiny, tokenizer_json, write_tiny
from cortiq.cli.main import main
from cortiq.edit.shard import shard

GB = "0.000028"


def test_a_set_is_written_beside_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = single(tmp_path / "m.cmf")
    assert main(["shard", str(path), "--max-gb", GB]) == 0
    out, err = capsys.readouterr()
    first = tmp_path / "m-00001-of-00004.cmf"
    assert out == f"{first}\n"
    assert "4 files" in err
    assert whole(first) == whole(path)


def test_document_and_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = single(tmp_path / "m.cmf")
    assert main(["shard", str(path), "--max-gb", GB, "-o", str(tmp_path / "x.cmf"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["set"]) == 32
    names = [Path(file["path"]).name for file in document["files"]]
    assert names == [f"x-0000{no}-of-00004.cmf" for no in range(1, 5)]
    assert [file["bytes"] for file in document["files"]] == [(tmp_path / name).stat().st_size for name in names]


def test_an_existing_set_is_replaced_by_force_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = single(tmp_path / "m.cmf")
    old = written_set(tmp_path)
    assert main(["shard", str(path), "--max-gb", "1"]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["shard", str(path), "--max-gb", "1", "--force"]) == 0
    out, err = capsys.readouterr()
    assert out.strip().endswith("m-00001-of-00001.cmf")
    assert all(f"{left} is of another set" in err for left in old.paths)
    assert main(["shard", str(old.paths[0]), "--max-gb", GB, "--force"]) == 2
    assert "the same" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-1", "nan", "inf", "x", "1e400"])
def test_sizes_that_cannot_be_meant(size: str, tmp_path: Path) -> None:
    assert main(["shard", str(single(tmp_path / "m.cmf")), "--max-gb", size]) == 2


def test_verify_reads_all_files_of_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    assert main(["verify", str(paths[0])]) == 0
    assert "4 files, which belong together" in capsys.readouterr().out
    assert main(["verify", str(paths[2]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    data = bytearray(paths[2].read_bytes())
    data[5000] ^= 1
    paths[2].write_bytes(data)
    assert main(["verify", str(paths[0])]) == 4
    assert f"[{paths[2]}, data" in capsys.readouterr().out
    assert main(["verify", str(paths[0]), "--alone"]) == 0
    assert "file 1 of a set of 4: the others were not looked at" in capsys.readouterr().out
    assert main(["verify", str(paths[2])]) == 4


def test_verify_works_without_the_siblings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    paths[1].unlink()
    assert main(["verify", str(paths[0])]) == 0
    out = capsys.readouterr().out
    assert "warning  Shard.missing" in out
    assert "the others were not looked at" in out
    assert main(["verify", str(paths[0]), "--strict"]) == 3
    assert main(["verify", str(paths[3])]) == 0
    paths[2].write_bytes(b"CMF")
    paths[1].write_bytes(paths[3].read_bytes())
    capsys.readouterr()
    assert main(["verify", str(paths[0])]) == 0
    assert "warning  Shard.mismatch" in capsys.readouterr().out


def test_every_file_has_its_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths, key, public = written_set(tmp_path).paths, tmp_path / "key", ""
    for i, path in enumerate(paths):
        if i == 3:
            assert main(["verify", str(paths[0]), "--pubkey", public]) == 4
            assert "Signature.absent" in capsys.readouterr().out
        assert main(["sign", str(path), "--key", str(key), *(["--new-key"] if i == 0 else [])]) == 0
        out, err = capsys.readouterr()
        assert "each needs a signature of its own" in err
        public = out.partition("pubkey: ")[2].split()[0]
    assert main(["verify", str(paths[0]), "--pubkey", public]) == 0
    assert capsys.readouterr().out.count("signed by a trusted key") == 4
    assert main(["verify", str(paths[0]), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["signatures"]) == [str(path) for path in paths]


def test_info_shows_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    assert main(["info", str(paths[2])]) == 0
    out = capsys.readouterr().out
    assert "4 files" in out
    assert all(path.name in out for path in paths)
    assert main(["info", str(paths[2]), "--json", "--tensors"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in document["files"]] == [str(path) for path in paths]
    assert document["shard"]["count"] == 4
    assert document["tokenizer"] is not None
    assert {row["file"] for row in document["tensors"]["list"]} == {path.name for path in paths}
    assert main(["info", str(paths[2]), "--alone", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["shard"]["no"], document["tokenizer"], len(document["files"])) == (3, None, 1)


@pytest.mark.parametrize("command", [["masks"], ["skill", "list"], ["story"]])
def test_other_readers_take_the_whole_set(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = written_set(tmp_path).paths
    said = []
    for path in (paths[3], paths[0]):
        assert main([*command, str(path), "--json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    if command[0] == "skill":
        assert json.loads(said[0])["skills"][0]["tensors"] == 2
    paths[1].unlink()
    assert main([*command, str(paths[0])]) == 3
    assert paths[1].name in capsys.readouterr().err


def test_nothing_differs_from_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written_set(tmp_path).paths
    assert main(["diff", str(paths[1]), str(tmp_path / "m.cmf")]) == 0
    assert "no difference" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["compact"], ["edit", "--set", "x=1"]])
def test_one_file_of_a_set_is_not_changed_alone(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written_set(tmp_path).paths[0]
    before = path.read_bytes()
    assert main([command[0], str(path), *command[1:]]) == 2
    assert "UsageError.shards" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_set_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.cmf", Tiny(matrix="q8_row"), tokenizer=tokenizer_json())
    written = shard(path, None, 150_000)
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20)
    run, ppl = ["run", "{}", "hello", "-n", "5", "--temperature", "0"], ["ppl", "{}", "-f", str(text), "--ctx", "32"]
    for command in (run, ppl):
        said = []
        for model in (path, written.paths[-1]):
            arguments = [word.replace("{}", str(model)) for word in command]
            assert main([*arguments, "-t", "1"]) == 0, capsys.readouterr().err
            said.append(capsys.readouterr().out.replace(str(model), "").replace(model.name, ""))
        assert said[0] == said[1]
