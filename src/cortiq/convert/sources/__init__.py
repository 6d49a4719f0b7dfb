"""Readers of the kinds of checkpoints that can be converted."""

from pathlib import Path

from cortiq.container.envelope import MAGIC as CMF_MAGIC
from cortiq.convert.source import Source
from cortiq.convert.sources.gguf import open_gguf
from cortiq.convert.sources.gguf_file import GGUF_MAGIC
from cortiq.convert.sources.huggingface import open_huggingface
from cortiq.errors import SourceError

__all__ = ["open_gguf", "open_huggingface", "open_source"]


def open_source(path: Path) -> Source:
    """Open a folder with a Hugging Face checkpoint, or a GGUF file, which its first bytes tell.

    Raises SourceError for anything else, and as ``open_huggingface`` and ``open_gguf``.
    """
    if path.is_dir():
        return open_huggingface(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", code="open", path=str(path)) from error
    if magic == GGUF_MAGIC:
        return open_gguf(path)
    if magic == CMF_MAGIC:
        raise SourceError(
            "a CMF file needs no conversion; `cortiq requant` writes it in another precision",
            code="kind",
            path=str(path),
        )
    raise SourceError("neither a folder with a config.json nor a GGUF file", code="kind", path=str(path))
