"""The bytes of a CMF file: envelope, header, directory, blob; reading, writing, verifying (SPEC 1-6, 8)."""

from cortiq.container.arch import Arch
from cortiq.container.file import File
from cortiq.container.header import Header
from cortiq.container.reader import open, open_single
from cortiq.container.tensor import Tensor, TensorEntry

__all__ = ["Arch", "File", "Header", "Tensor", "TensorEntry", "open", "open_single"]
