"""From what a user calls a model to a file: a path, a known name, a Hugging Face folder or a GGUF."""

from __future__ import annotations

from pathlib import Path

from cortiq.errors import UsageError
from cortiq.settings import Settings


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
