"""``cortiq convert`` and ``import-gguf`` on a tiny checkpoint."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

import cortiq
from cortiq.cli.main import main

CHECKPOINT = Path(__file__).parents[1] / "data" / "hf" / "llama"


def test_positional(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "model.cmf"
    assert main(["convert", str(CHECKPOINT), str(output)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{output}\n"
    assert "q8_row" in err
    with cortiq.open(output) as file:
        assert file["model.layers.0.mlp.down_proj.weight"].dtype == "q8_row"


def test_as_the_specification_spells_it(tmp_path: Path) -> None:
    output = tmp_path / "model.cmf"
    command = ["convert", "--model", str(CHECKPOINT), "--quant", "q4t", "--output", str(output), "--encoder", "plain"]
    assert main([*command, "--embed", "f16", "--tensor", "down_proj=q8"]) == 0
    with cortiq.open(output) as file:
        assert file["model.layers.0.mlp.up_proj.weight"].dtype == "q4_tiled"
        assert file["model.layers.0.mlp.down_proj.weight"].dtype == "q8_row"
        assert file["model.embed_tokens.weight"].dtype == "f16"


@pytest.mark.parametrize("quant", ["q4", "q1", "q1p", "q1s", "q1t"])
def test_what_is_written_in_a_slow_dtype_says_so_and_runs(
    quant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "model.cmf"
    assert main(["convert", str(CHECKPOINT), str(output), "--quant", quant]) == 0
    with cortiq.open(output) as file:
        dtype = file["model.layers.0.mlp.down_proj.weight"].dtype
    capsys.readouterr()
    assert main(["info", str(output)]) == 0
    assert f"{dtype}: no fast kernels, runs through decode-to-scratch" in capsys.readouterr().out
    with cortiq.load(output, threads=1) as model:
        assert model.forward([1, 2, 3]).shape[0] == 3


def test_never_overwrites_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "model.cmf"
    output.write_text("mine")
    assert main(["convert", str(CHECKPOINT), str(output)]) == 2
    assert output.read_text() == "mine"
    assert str(output) in capsys.readouterr().err
    assert main(["convert", str(CHECKPOINT), str(output), "--force"]) == 0
    assert output.read_bytes()[:4] == b"CMF\x01"


def test_a_set_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["convert", str(CHECKPOINT), str(tmp_path / "m.cmf"), "--shard-max-gb", "0.0003", "--json"]
    assert main([*arguments, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)["files"]
    assert list(tmp_path.iterdir()) == []
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == planned == len(list(tmp_path.iterdir())) > 1
    assert document["output"] == str(tmp_path / f"m-00001-of-{planned:05}.cmf")
    assert main(arguments) == 2


@pytest.mark.parametrize(
    ("error", "facts", "code"),
    [(KeyboardInterrupt, (), 130), (OSError, (errno.ENOSPC, "No space left"), 1), (SystemExit, (143,), 143)],
)
@pytest.mark.parametrize("resume", [True, False])
def test_what_is_kept_of_an_interrupted_conversion_is_said(
    resume: bool,
    error: type[BaseException],
    facts: tuple[object, ...],
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, arguments = tmp_path / "model.cmf", ["convert", str(CHECKPOINT), str(tmp_path / "model.cmf")]
    arguments += ["--resume"] if resume else []

    def stops(_: object, done: int, total: int) -> None:
        if done > total // 2:
            raise error(*facts)

    with monkeypatch.context() as patch:
        patch.setattr("cortiq.cli.progress.Silent.update", stops)
        patch.setattr("cortiq.container.partial.SAVE_EVERY", 1)
        assert status(arguments) == code
    out, err = capsys.readouterr()
    assert not out
    kept = f"what is finished is kept in {tmp_path / '.model.cmf.partial'}; the same command goes on from there"
    assert (kept in err) == resume
    assert len(list(tmp_path.iterdir())) == (2 if resume else 0)
    assert status(arguments) == 0
    assert ("tensors were there from an interrupted attempt" in capsys.readouterr().err) == resume
    assert list(tmp_path.iterdir()) == [output]


def status(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(str(end.code))


def test_only_what_was_begun_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["convert", str(CHECKPOINT), str(tmp_path / "model.cmf"), "--resume"]

    def stops(_: object, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cortiq.cli.progress.Silent.update", stops)
        assert main(arguments) == 130
    capsys.readouterr()
    assert main([*arguments, "--quant", "q4_tiled"]) == 2
    assert "had another option quant" in capsys.readouterr().err
    assert main([*arguments, "--shard-max-gb", "1"]) == 2
    assert "cortiq shard" in capsys.readouterr().err
    assert main(arguments) == 0


def test_a_cmf_file_is_sent_to_requant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(CHECKPOINT), str(tmp_path / "model.cmf")]) == 0
    assert main(["convert", str(tmp_path / "model.cmf"), str(tmp_path / "other.cmf")]) == 1
    assert "cortiq requant" in capsys.readouterr().err


def test_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "model.cmf"
    assert main(["convert", str(CHECKPOINT), str(output), "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not output.exists()
    assert main(["convert", str(CHECKPOINT), str(output), "--json"]) == 0
    receipt = json.loads(capsys.readouterr().out)
    assert document["dtypes"] == receipt["dtypes"]
    assert document["bytes"] == sum(receipt["dtype_bytes"].values())


@pytest.mark.parametrize(
    "arguments",
    [
        [str(CHECKPOINT)],
        [],
        [str(CHECKPOINT), "out.cmf", "--output", "other.cmf"],
        [str(CHECKPOINT), "-"],
        [str(CHECKPOINT), "out.cmf", "--quant", "q5_nonsense"],
        [str(CHECKPOINT), "out.cmf", "--tensor", "down_proj"],
    ],
)
def test_usage_errors(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *arguments]) == 2
    assert not list(tmp_path.iterdir())
    assert not capsys.readouterr().out


def test_unsupported_model_ends_with_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in CHECKPOINT.iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    assert main(["convert", str(source), str(tmp_path / "model.cmf")]) == 7
    assert "unheard_of" in capsys.readouterr().err


def test_import_gguf_needs_a_file(tmp_path: Path) -> None:
    assert main(["import-gguf", str(tmp_path / "absent.gguf"), "-o", str(tmp_path / "x.cmf")]) == 2
