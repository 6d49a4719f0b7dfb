"""Names of remote files, and what is asked of whom for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cortiq
from builders.cmf import two_layers
from builders.range_server import RangeServer, redirect
from cortiq.container.location import check_local, is_url, locate
from cortiq.errors import NetworkError, UsageError

SOURCE = Path(cortiq.__file__).parents[1]

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


def test_what_is_a_url() -> None:
    for name in ("https://host/x", "http://host/x", "hf://a/b/c.cmf", "HTTPS://HOST/x"):
        assert is_url(name)
    for other in ("model.cmf", "./https:/x", "org/name@main", "s3://bucket/x", "http:/x", Path("x"), 3, None):
        assert not is_url(other)


def test_a_url_is_shown_without_secrets() -> None:
    place = locate("https://me:word@host:8443/a/b.cmf?signature=abc#part")
    assert place.shown == "https://host:8443/a/b.cmf"
    assert place.url == "https://me:word@host:8443/a/b.cmf?signature=abc"
    assert "authorization" not in {name.lower() for name in place.headers}


@pytest.mark.parametrize("url", ["http://", "https:///x.cmf", "http://[::1/x.cmf", "http://host:99999/x"])
def test_impossible_urls(url: str) -> None:
    for use in (locate, lambda name: check_local(name, "this")):
        with pytest.raises(UsageError) as caught:
            use(url)
        assert caught.value.kind == "UsageError.url"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("hf://org/repo/model.cmf", "/org/repo/resolve/main/model.cmf"),
        ("hf://org/repo/sub/folder/model.cmf@v1.0", "/org/repo/resolve/v1.0/sub/folder/model.cmf"),
        ("hf://org/repo/model.cmf@refs/pr/1", "/org/repo/resolve/refs%2Fpr%2F1/model.cmf"),
        ("hf://Org/Repo.x/a b.cmf", "/Org/Repo.x/resolve/main/a%20b.cmf"),
    ],
)
def test_files_of_the_hub(name: str, path: str) -> None:
    place = locate(name)
    assert place.url.endswith(path)
    assert place.shown == name


@pytest.mark.parametrize(
    "name",
    ["hf://org", "hf://org/repo", "hf://org/repo/", "hf://org/repo@main/x.cmf", "hf://org/repo/x.cmf@",
     "hf://datasets/org/repo/x.cmf", "hf://org/re--po/x.cmf"],
)  # fmt: skip
def test_what_is_no_file_of_the_hub(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        locate(name)
    assert (caught.value.kind, caught.value.path) == ("UsageError.url", name)


def test_offline_means_nothing_is_asked(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with RangeServer(model) as server:
        for name in (server.url, "hf://org/repo/model.cmf"):
            with pytest.raises(NetworkError, match="HF_HUB_OFFLINE is set") as caught:
                cortiq.open(name)
            assert (caught.value.code, caught.value.path) == ("offline", name)
        assert not server.asked


def info(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``cortiq info`` in a process of its own, because the hub's library reads the environment once."""
    command = [sys.executable, "-m", "cortiq", "info", name]
    variables = {**os.environ, "PYTHONPATH": str(SOURCE), "NO_PROXY": "127.0.0.1", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_the_hub_is_asked_with_its_token_and_nobody_else(model: Path, tmp_path: Path) -> None:
    home = {"HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    with RangeServer(model) as store, RangeServer(model) as hub:
        hub.always = redirect(f"{store.host}/signed/model.cmf")
        run = info("hf://org/repo/model.cmf@v1", HF_ENDPOINT=hub.host, **home)
        assert run.returncode == 0, run.stderr
        assert "hf://org/repo/model.cmf@v1" in run.stdout
        (asked,) = hub.asked
        assert asked.path == "/org/repo/resolve/v1/model.cmf"
        assert asked.headers["authorization"] == "Bearer hf_secret"
        assert "cortiq/" in asked.headers["user-agent"]
        assert [(a.path, "authorization" in a.headers) for a in store.asked] == [("/signed/model.cmf", False)]


def test_the_environment_says_offline(model: Path) -> None:
    with RangeServer(model) as hub:
        run = info("hf://org/repo/model.cmf", HF_ENDPOINT=hub.host, HF_HUB_OFFLINE="1")
        assert (run.returncode, hub.asked) == (9, [])
        assert "HF_HUB_OFFLINE is set" in run.stderr
