"""Names of models: paths, kept conversions, known names."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest

from builders.cmf import two_layers
from cortiq.cli.console import Console
from cortiq.cli.main import main
from cortiq.cli.models import existing_file, is_gguf, kept_file, resolve
from cortiq.errors import UsageError

CHECKPOINT = Path(__file__).parents[1] / "data" / "hf" / "llama"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORTIQ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def console() -> Console:
    return Console(io.StringIO(), io.StringIO(), {})


def test_a_cmf_file_is_itself(tmp_path: Path, console: Console) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert resolve(str(path), "q4_tiled", console) == path


def test_a_folder_is_converted_once(home: Path, console: Console, tmp_path: Path) -> None:
    source = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, source)
    first = resolve(str(source), "q4t", console)
    assert first.parent == home / "models"
    assert first.read_bytes()[:4] == b"CMF\x01"
    written = first.stat().st_mtime_ns
    assert resolve(str(source), "q4_tiled", console) == first
    assert first.stat().st_mtime_ns == written
    assert resolve(str(source), "q8", console) != first
    os.utime(source / "config.json", ns=(1, 1))
    assert resolve(str(source), "q4t", console) != first


def test_each_thing_done_is_one_line(tmp_path: Path) -> None:
    err = io.StringIO()
    resolve(str(CHECKPOINT), "q4t", Console(io.StringIO(), err, {}))
    done = [line for line in err.getvalue().splitlines() if not line.startswith("note:")]
    assert len(done) == 1
    assert done[0].startswith("converted llama to q4_tiled in ")


def test_a_name_that_means_nothing(console: Console) -> None:
    with pytest.raises(UsageError, match="smollm2"):
        resolve("smolm2", "q4t", console)


def test_kept_models_have_readable_names(home: Path) -> None:
    assert kept_file("smollm2", "q4_tiled") == home / "models" / "smollm2-q4_tiled.cmf"
    assert kept_file("org/name@main", "q8_row") == home / "models" / "org--name--main-q8_row.cmf"


def test_existing_file_finds_kept_ones(home: Path, tmp_path: Path) -> None:
    (home / "models").mkdir(parents=True)
    kept = two_layers().save(home / "models" / "tiny-q4_tiled.cmf")
    assert existing_file("tiny") == existing_file("tiny-q4_tiled") == kept
    with pytest.raises(UsageError, match="tiny-q4_tiled"):
        existing_file("other")


def test_is_gguf(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"GGUF\3\0\0\0")
    assert is_gguf(path)
    path.write_bytes(b"")
    assert not is_gguf(path)


def test_pull_prints_the_path_last(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cortiq.cli.models.source_of", lambda *_: (CHECKPOINT, CHECKPOINT.name))
    assert main(["pull", "smollm2"]) == 0
    kept = home / "models" / "smollm2-q4_tiled.cmf"
    assert capsys.readouterr().out == f"{kept}\n"
    monkeypatch.delattr("cortiq.cli.models.source_of")  # from here on nothing may be fetched again
    assert main(["pull", "smollm2", "-o", str(tmp_path / "mine.cmf")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.cmf'}\n"
    assert (tmp_path / "mine.cmf").read_bytes() == kept.read_bytes()
    assert main(["pull", "smollm2", "-o", str(tmp_path / "mine.cmf")]) == 2
    assert sorted(p.name for p in (home / "models").iterdir()) == [kept.name]
