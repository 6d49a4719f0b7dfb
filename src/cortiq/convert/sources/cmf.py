"""A CMF file as a source: tensors decoded in blocks of rows, or taken as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from cortiq.container import File, TensorEntry, open
from cortiq.container.hashing import StreamHash
from cortiq.convert.families import TensorRule
from cortiq.convert.mapped import STAMPED, stamp_of
from cortiq.convert.source import Block, Source, SourceTensor
from cortiq.errors import HashMismatch
from cortiq.layouts import layout, native
from cortiq.layouts.sizes import rows_and_cols

_PIECE = 1 << 22
_FLOATS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}


class CmfTensor(SourceTensor):
    """A tensor of an open file. Rows are those of ``rows_and_cols``, decoded to f32 unless they are floats."""

    __slots__ = ("entry", "file")

    def __init__(self, file: File, entry: TensorEntry) -> None:
        super().__init__(entry.name, entry.name, entry.shape, entry.nbytes, TensorRule(entry.name, "", ""))
        self.file = file
        self.entry = entry

    @property
    def dtype(self) -> str:
        """Name of its dtype in the file."""
        return layout(self.entry.dtype).name

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return rows_and_cols(self.shape)

    def validate(self) -> None:
        """Check what a decoder relies on. Raises Parse or Bounds with the name of the tensor."""
        self.file[self.name].validate()

    def read(self, first: int, last: int) -> Block:
        kind, raw = layout(self.entry.dtype), self.file[self.name].raw
        if kind.name in _FLOATS:
            values: Block = np.frombuffer(raw, np.uint8).view(_FLOATS[kind.name]).reshape(self.matrix_shape)
            return values[first:last]
        return native.decode_rows(kind, raw, self.shape, first, last)

    def release(self, first: int, last: int) -> None:
        """Drops about the share of the payload that these rows have."""
        rows = self.matrix_shape[0]
        start = self.nbytes * first // rows
        self._drop(start, self.nbytes * last // rows - start)

    def forget(self) -> None:
        """Give back all pages of this tensor. It can be read again."""
        self._drop(0, self.nbytes)

    def pieces(self) -> Iterator[memoryview]:
        """The payload as it is, in order. Raises HashMismatch after the last piece when it is not what was hashed."""
        raw, state = self.file[self.name].raw, StreamHash()
        for start in range(0, self.nbytes, _PIECE):
            piece = raw[start : start + _PIECE]
            state.update(piece)
            yield piece
            self._drop(start, len(piece))
        found = state.digest()
        if self.entry.hash and found != self.entry.hash:
            raise HashMismatch(
                "the payload does not match its hash",
                code="tensor",
                path=str(self.file.path),
                tensor=self.name,
                expected=f"{self.entry.hash:016x}",
                found=f"{found:016x}",
            )

    def _drop(self, offset: int, nbytes: int) -> None:
        self.file.release(self.entry, offset, nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CmfSource(Source):
    """``file`` has what a checkpoint of another kind has not: masks, skills, header fields.

    ``entries`` are its tensors.
    """

    file: File
    entries: tuple[CmfTensor, ...]


def open_cmf(path: Path) -> CmfSource:
    """Open the model at ``path``. Raises as ``cortiq.open``."""
    file = open(path)
    entries = tuple(CmfTensor(file, entry) for entry in file.tensors.values())
    return CmfSource(
        kind="cmf",
        name=path.name,
        arch=file.header["arch"],
        tensors=entries,
        tokenizer_json=file.tokenizer_json,
        tokenizer_config=file.tokenizer_config or {},
        generation=file.generation,
        notes=(),
        stamps={part.name: _stamp(part) for part in file.parts or (file,)},
        closers=(file,),
        file=file,
        entries=entries,
    )


def _stamp(file: File) -> str:
    return stamp_of(file.local_path.stat(), bytes(file.mapping.view(0, min(file.size, STAMPED))))
