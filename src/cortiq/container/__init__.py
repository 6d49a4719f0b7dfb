"""The bytes of a CMF file: envelope, header, directory, blob; reading, writing, growing, verifying (SPEC 1-6, 8, 9)."""

from cortiq.container.arch import Arch
from cortiq.container.blob_layout import BlobLayout, record_layout
from cortiq.container.file import File
from cortiq.container.growth import grow
from cortiq.container.header import QUANT_TYPES, Header
from cortiq.container.locking import InPlace
from cortiq.container.reader import open, open_single
from cortiq.container.tensor import Tensor, TensorEntry
from cortiq.container.verify import Report, verify
from cortiq.container.writer import TensorSpec, copy, write_file

__all__ = [
    "QUANT_TYPES",
    "Arch",
    "BlobLayout",
    "File",
    "Header",
    "InPlace",
    "Report",
    "Tensor",
    "TensorEntry",
    "TensorSpec",
    "copy",
    "grow",
    "open",
    "open_single",
    "record_layout",
    "verify",
    "write_file",
]
