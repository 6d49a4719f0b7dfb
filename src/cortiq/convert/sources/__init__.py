"""Readers of the kinds of checkpoints that can be converted."""

from pathlib import Path

from cortiq.convert.source import Source
from cortiq.convert.sources.huggingface import open_huggingface
from cortiq.errors import SourceError

__all__ = ["open_huggingface", "open_source"]


def open_source(path: Path) -> Source:
    """Open a folder with a Hugging Face checkpoint.

    Raises SourceError for anything else, and as ``open_huggingface``.
    """
    if path.is_dir():
        return open_huggingface(path)
    raise SourceError("not a folder with a config.json", code="kind", path=str(path))
