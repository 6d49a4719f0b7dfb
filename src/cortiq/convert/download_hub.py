"""Checkpoints of the Hugging Face hub, through its own library and cache: only the files a conversion reads."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cortiq.errors import NetworkError

__all__ = ["HubRepo", "cached_snapshot", "download_snapshot"]

WANTED = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer.json",
          "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
          "chat_template.json", "tokenizer.model", "LICENSE*")  # fmt: skip
UNWANTED = ("*/*", "consolidated*")
REACH_SECONDS = 4.0
ANSWER_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A model repository, ``org/name``, at a branch, tag or commit (None: its default branch)."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def cached_snapshot(source: HubRepo) -> Path | None:
    """The complete checkpoint in the hub's cache, without a network; None when it is not there."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = _snapshot(source, local_files_only=True)
    except (LocalEntryNotFoundError, ValueError):
        return None
    return found if _is_checkpoint(found) else None


def download_snapshot(source: HubRepo, progress: Callable[[int, int], None]) -> Path:
    """The folder of the checkpoint in the hub's cache, downloaded or brought up to date.

    The library resumes what it has and renames a file only when it is whole. Raises NetworkError: within seconds when
    the hub cannot be reached at all, else with what the hub said.
    """
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    if (reason := unreachable()) is not None:
        if (snapshot := cached_snapshot(source)) is not None:
            return snapshot
        raise NetworkError(reason, code="unreachable")
    try:
        bar = _reporting_bar(progress)
        snapshot = _snapshot(source, etag_timeout=ANSWER_SECONDS, max_workers=4, tqdm_class=bar)
    except GatedRepoError as error:
        raise NetworkError(f"{source.repo} asks for an accepted licence and a token", code="gated") from error
    except RevisionNotFoundError as error:
        raise NetworkError(f"{source.repo} has no revision {source.revision}", code="revision") from error
    except RepositoryNotFoundError as error:
        raise NetworkError(f"there is no public repository {source.repo}", code="repository") from error
    except Exception as error:
        # The library reports a refusal it could not work around as the cause of a missing file.
        answer = next((e for e in (error, error.__cause__) if isinstance(e, HfHubHTTPError)), None)
        said = (
            f"the hub's library failed: {_one_line(error)}"
            if answer is None
            else f"the hub answered: {_one_line(answer)}"
        )
        raise NetworkError(said, code="hub") from error
    _check_weights(snapshot)
    if not _is_checkpoint(snapshot):
        raise NetworkError(f"{source} holds no config.json and safetensors files", code="content")
    return snapshot


def unreachable() -> str | None:
    """Why the hub cannot be reached, None when it can. Answers within a few seconds.

    The library itself would try for half a minute. Behind a proxy only the proxy can tell, so it is asked nothing.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    address = urlsplit(constants.ENDPOINT)
    if address.scheme in urllib.request.getproxies() or address.hostname is None:
        return None
    host, port = address.hostname, address.port or (443 if address.scheme == "https" else 80)
    answer: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=REACH_SECONDS).close()
            answer.append(None)
        except OSError as error:
            answer.append(f"{host} cannot be reached ({error.strerror or error})")

    # Looking up a name has no timeout of its own.
    thread = threading.Thread(target=connect, name="cortiq-reach", daemon=True)
    thread.start()
    thread.join(REACH_SECONDS + 1)
    return answer[0] if answer else f"{host} does not answer"


def _snapshot(source: HubRepo, **how: Any) -> Path:
    from huggingface_hub import snapshot_download

    wanted, unwanted = list(WANTED), list(UNWANTED)
    found = snapshot_download(
        source.repo, revision=source.revision, allow_patterns=wanted, ignore_patterns=unwanted, **how
    )
    return Path(found)


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _check_weights(snapshot: Path) -> None:
    """Large files are kept under the SHA-256 the hub states for them; one that does not have it is removed."""
    for file in sorted(snapshot.glob("*.safetensors")):
        blob = file.resolve()
        if not re.fullmatch("[0-9a-f]{64}", blob.name):
            continue
        with blob.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != blob.name:
            file.unlink()
            blob.unlink(missing_ok=True)
            raise NetworkError(
                f"{file.name} as downloaded is not the file the hub states",
                code="sha256",
                expected=blob.name,
                found=found,
            )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _reporting_bar(progress: Callable[[int, int], None]) -> type[Any]:
    """A progress bar class for the library that draws nothing and reports the bytes written."""
    from tqdm.auto import tqdm

    class Nowhere:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            return None

    class ReportingBar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._reports = kwargs.get("unit") == "B" and "Reconstruct" in str(kwargs.get("desc"))
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "file": Nowhere(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            shown: bool | None = super().update(n)
            if self._reports:
                progress(int(self.n), max(int(self.total or 0), int(self.n)))
            return shown

    return ReportingBar
