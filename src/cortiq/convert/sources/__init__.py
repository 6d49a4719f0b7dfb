"""Readers of the kinds of checkpoints that can be converted."""

from pathlib import Path

from cortiq.convert.source import Source
from cortiq.convert.sources.gguf import open_gguf
from cortiq.convert.sources.huggingface import open_huggingface
from cortiq.errors import SourceError

__all__ = ["open_gguf", "open_huggingface", "open_source"]


def open_source(path: Path) -> Source:
    """Open a folder with a Hugging Face checkpoint, or a GGUF file.

    Raises SourceError for anything else, and as ``open_huggingface`` and ``open_gguf``.
    """
    if path.is_dir():
        return open_huggingface(path)
    if path.is_file() and path.suffix == ".gguf":
        return open_gguf(path)
    raise SourceError("neither a folder with a config.json nor a .gguf file", code="kind", path=str(path))
