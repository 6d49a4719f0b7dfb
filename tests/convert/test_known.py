"""Known models and Hugging Face references, against a stand-in for the hub and for pip. No network."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cortiq.convert import download_hub, download_wheels, known
from cortiq.convert.download_hub import HubRepo
from cortiq.convert.download_wheels import WheelFile, download_wheel_file, is_complete
from cortiq.errors import NetworkError, UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights" * 1000,
    "tokenizer.json": b"{}",
    "README.md": b"not wanted",
    "onnx/model.safetensors": b"not wanted either",
}
PART_A, PART_B = b"GGUF" + bytes(range(256)) * 40, b"the rest" * 500


def ignore(*_: object) -> None:
    return None


class FakeHub(BaseHTTPRequestHandler):
    """The four requests the library makes: revision, tree, HEAD and GET of a file."""

    files: dict[str, bytes] = FILES
    status = 200
    log: list[str]

    def log_message(self, *_: object) -> None:
        return None

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        status = self.server.status  # type: ignore[attr-defined]
        if status != 200:
            self.answer(status, b"", {"X-Error-Code": {404: "RepoNotFound", 403: "GatedRepo"}.get(status, "")})
        elif self.path.startswith("/api/models/org/tiny/revision/"):
            self.answer_json({"_id": "1", "id": "org/tiny", "sha": COMMIT, "siblings": []})
        elif self.path.startswith("/api/models/org/tiny/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self.server.files.items()  # type: ignore[attr-defined]
            ]
            self.answer_json(entries)
        else:
            data = self.server.files[self.path.partition(f"/resolve/{COMMIT}/")[2]]  # type: ignore[attr-defined]
            stated = hashlib.sha256(self.server.lie + data).hexdigest()  # type: ignore[attr-defined]
            headers = {"ETag": f'"{stated}"', "X-Repo-Commit": COMMIT}
            self.answer(200, data, headers)

    def answer_json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A hub on this machine, with a cache of its own."""
    import huggingface_hub.constants as constants

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.files, server.status, server.seen, server.lie = dict(FILES), 200, [], b""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(download_hub.urllib.request, "getproxies", dict)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that cannot be reached, and an empty cache."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(download_hub, "unreachable", lambda: "the hub cannot be reached")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """pip replaced by a script that copies wheels out of a folder, given by the requirement's name."""
    index = tmp_path / "index"
    index.mkdir()
    script = tmp_path / "pip.py"
    script.write_text(
        textwrap.dedent(f"""\
        import pathlib, shutil, sys
        wheel = pathlib.Path({str(index)!r}) / (sys.argv[-1].replace("==", "-") + "-py3-none-any.whl")
        if not wheel.exists():
            sys.exit("noise\\nERROR: No matching distribution found for " + sys.argv[-1] + "\\n")
        shutil.copy(wheel, sys.argv[sys.argv.index("--dest") + 1])
        """)
    )
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        if command[1:3] != ["-m", "pip"]:
            return popen(command, **options)
        assert command[0] == sys.executable
        return popen([sys.executable, str(script), *command[3:]], **options)

    monkeypatch.setattr(download_wheels.subprocess, "Popen", start)
    monkeypatch.setattr(download_wheels, "POLL_SECONDS", 0.01)
    return index


def wheel(index: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/__init__.py", "x")
        archive.writestr("pkg/model.bin", content)


def two_parts(index: Path) -> WheelFile:
    wheel(index, "part1-1.0", PART_A)
    wheel(index, "part2-1.0", PART_B)
    data = PART_A + PART_B
    return WheelFile("m.gguf", len(data), hashlib.sha256(data).hexdigest(), ("part1==1.0", "part2==1.0"))


def test_known_models() -> None:
    assert set(known.KNOWN) == {"smollm2", "qwen2.5-coder-0.5b", "gemma-3-270m"}
    for model in known.KNOWN.values():
        assert model.description
        assert model.licence
        assert model.hub.revision is None  # commits nobody here has seen are not pinned
        assert len(model.wheels.sha256) == 64
        assert model.size > 0 < model.wheels.size
        assert all("==" in requirement for requirement in model.wheels.requirements)


def test_wheels_are_joined_checked_and_reused(pip: Path, tmp_path: Path) -> None:
    wanted = two_parts(pip)
    seen: list[tuple[int, int]] = []
    folder = tmp_path / "new" / "sources"
    path = download_wheel_file(wanted, folder, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == PART_A + PART_B
    assert [p.name for p in folder.iterdir()] == ["m.gguf"]
    assert seen[-1] == (wanted.size, wanted.size)
    assert all(a[0] <= b[0] for a, b in pairwise(seen))
    assert is_complete(path, wanted)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not is_complete(path, wanted)


def test_nothing_is_left_behind(pip: Path, tmp_path: Path) -> None:
    wanted = two_parts(pip)
    folder = tmp_path / "sources"
    with pytest.raises(NetworkError, match="not the expected file") as wrong:
        download_wheel_file(replace(wanted, sha256="0" * 64), folder, ignore)
    assert wrong.value.code == "sha256"
    with pytest.raises(NetworkError, match="No matching distribution found for part9==1"):
        download_wheel_file(replace(wanted, requirements=("part1==1.0", "part9==1")), folder, ignore)
    (pip / "part2-1.0-py3-none-any.whl").write_bytes(b"<html>")
    with pytest.raises(NetworkError, match="damaged"):
        download_wheel_file(wanted, folder, ignore)
    assert list(folder.iterdir()) == []


def test_an_interrupted_download_is_cleaned_up(pip: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "sources"
    with pytest.raises(KeyboardInterrupt):
        download_wheel_file(two_parts(pip), folder, interrupt)
    assert list(folder.iterdir()) == []


def test_leftovers_of_a_killed_process_go(pip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (folder / f".download-{int(gone.stdout)}-abc").mkdir()
    (folder / ".download-1-abc").mkdir()
    download_wheel_file(two_parts(pip), folder, ignore)
    assert sorted(p.name for p in folder.iterdir()) == [".download-1-abc", "m.gguf"]


def test_without_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NetworkError, match="pip is missing"):
        download_wheel_file(WheelFile("m", 1, "0" * 64, ("a==1",)), tmp_path, ignore)


def only(monkeypatch: pytest.MonkeyPatch, wheels: WheelFile) -> None:
    model = known.KnownModel("a test", "none", 1, HubRepo("org/tiny", COMMIT), wheels)
    monkeypatch.setattr(known, "KNOWN", MappingProxyType({"tiny": model}))


@pytest.mark.usefixtures("no_hub")
def test_known_model_falls_back_to_wheels_and_says_so(
    monkeypatch: pytest.MonkeyPatch, pip: Path, tmp_path: Path
) -> None:
    only(monkeypatch, two_parts(pip))
    said: list[str] = []
    source = known.resolve("tiny", tmp_path, say=said.append)
    assert (source.kind, source.origin) == ("gguf", "wheels:part1==1.0 part2==1.0")
    assert source.path == tmp_path / "sources" / "m.gguf"
    assert source.sha256 == hashlib.sha256(PART_A + PART_B).hexdigest()
    assert any("the hub cannot be reached" in line for line in said)
    for part in pip.iterdir():
        part.unlink()
    assert known.resolve("tiny", tmp_path) == source


@pytest.mark.usefixtures("no_hub")
def test_everything_that_was_tried_is_named(monkeypatch: pytest.MonkeyPatch, pip: Path, tmp_path: Path) -> None:
    only(monkeypatch, WheelFile("m.gguf", 1, "0" * 64, ("missing==3",)))
    with pytest.raises(NetworkError) as failed:
        known.resolve("tiny", tmp_path)
    for part in ("org/tiny", "the hub cannot be reached", "missing==3", "No matching distribution"):
        assert part in str(failed.value)


def test_a_reference_comes_from_the_hub(hub: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    source = known.resolve("org/tiny@main", tmp_path, lambda done, total: seen.append((done, total)))
    assert (source.kind, source.origin, source.sha256) == ("hf", f"hf:org/tiny@{COMMIT}", None)
    wanted = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {p.name for p in source.path.iterdir()} == wanted
    assert (source.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert seen[-1][0] == sum(len(FILES[name]) for name in wanted)
    assert not (tmp_path / "sources").exists()
    hub.seen.clear()
    assert known.resolve(f"org/tiny@{COMMIT}", tmp_path).path == source.path
    assert not any("/resolve/" in path for path in hub.seen)


def test_a_known_model_in_the_cache_needs_no_network(hub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only(monkeypatch, WheelFile("m.gguf", 1, "0" * 64, ("missing==3",)))
    first = known.resolve("tiny", tmp_path)
    assert first.kind == "hf"
    hub.seen.clear()
    monkeypatch.setattr(download_hub, "unreachable", lambda: pytest.fail("the network was asked"))
    assert known.resolve("tiny", tmp_path) == first
    assert hub.seen == []


@pytest.mark.parametrize(
    ("status", "said"), [(404, "no public repository"), (403, "licence"), (451, "the hub answered")]
)
def test_what_the_hub_refuses(hub: Any, status: int, said: str, tmp_path: Path) -> None:
    hub.status = status
    with pytest.raises(NetworkError, match=said):
        known.resolve(f"org/tiny@{COMMIT}", tmp_path)


def test_a_repository_without_a_checkpoint(hub: Any, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(NetworkError, match=r"holds no config\.json and safetensors"):
        known.resolve(f"org/tiny@{COMMIT}", tmp_path)


def test_weights_that_are_not_what_the_hub_states(hub: Any, tmp_path: Path) -> None:
    hub.lie = b"another file"
    with pytest.raises(NetworkError, match="not the file the hub states"):
        known.resolve("org/tiny", tmp_path)
    hub.lie = b""
    source = known.resolve("org/tiny", tmp_path)
    assert (source.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_an_unreachable_hub_is_told_apart_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(download_hub.urllib.request, "getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    reason = download_hub.unreachable()
    assert reason is not None
    assert "127.0.0.1" in reason
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert download_hub.unreachable() == "HF_HUB_OFFLINE is set"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("smolm2", "smollm2"), ("qwen", "qwen2.5-coder-0.5b"), ("Gemma", "gemma-3-270m"), ("zzz", "known")],
)
def test_unknown_names(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=hint) as refused:
        known.resolve(name, tmp_path)
    assert refused.value.code == "model"


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "/abs", "org/", "org/name@"])
def test_what_is_no_reference(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file, folder or known model"):
        known.resolve(name, tmp_path)
