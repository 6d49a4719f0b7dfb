"""From what a user calls a model to a file: a path, a known name, a Hugging Face folder or a GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cortiq.cli.console import Console
from cortiq.errors import UsageError
from cortiq.settings import Settings

if TYPE_CHECKING:
    from cortiq.engine.model import Model


def cache_file(name: str, quant: str, settings: Settings) -> Path:
    """Where the converted model called ``name`` is kept."""
    return settings.home / "models" / f"{name}-{quant}.cmf"


def existing_file(model: str) -> Path:
    """The .cmf file ``model`` means: a path, or a name whose file is in the cache.

    Raises UsageError.model when there is neither.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    home = Settings.load().home / "models"
    kept = sorted(home.glob("*.cmf")) if home.is_dir() else []
    found = [p for p in kept if p.stem == model or p.stem.rpartition("-")[0] == model]
    if not found:
        names = ", ".join(p.stem for p in kept)
        raise UsageError(f"there is no file {model}" + (f"; kept models are {names}" if kept else ""), code="model")
    return found[0]


def load_model(path: Path, given: Mapping[str, Any], console: Console) -> Model:
    """The engine over ``path``, with the execution options of the command line."""
    from cortiq.engine.model import load

    settings = {name: given.get(name) for name in ("mode", "threads", "isa", "context")}
    model = load(path, **settings)
    console.detail(f"{model!r}")
    return model


def engine_facts(model: Model) -> dict[str, Any]:
    """How ``model`` computes."""
    info = model.info
    return {"isa": info.isa, "mode": info.mode, "threads": info.threads, "context": info.context}
