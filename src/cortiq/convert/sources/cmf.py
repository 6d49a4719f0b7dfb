"""A CMF file as a source: tensors decoded in blocks of rows, or taken as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import ml_dtypes
import numpy as np

from cortiq.container import File, TensorEntry, open
from cortiq.container.hashing import StreamHash
from cortiq.convert.families import TensorRule
from cortiq.convert.source import Block, Source, SourceTensor
from cortiq.errors import HashMismatch
from cortiq.layouts import Plane, layout, native
from cortiq.layouts.base import as_bytes
from cortiq.layouts.sizes import GROUP, rows_and_cols
from cortiq.layouts.vbit import Vbit, row_ends

_PIECE = 1 << 22
_FLOATS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}


class CmfTensor(SourceTensor):
    """A tensor of an open file. Rows are those of ``rows_and_cols``.

    Row blocks of a dtype whose rows are not records are cut from the decoded tensor, which stays in memory until
    ``forget``.
    """

    __slots__ = ("_decoded", "_lock", "entry", "file")

    def __init__(self, file: File, entry: TensorEntry) -> None:
        super().__init__(entry.name, entry.name, entry.shape, entry.nbytes, TensorRule(entry.name, "", ""))
        self.file = file
        self.entry = entry
        self._decoded: Block | None = None
        self._lock = Lock()

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
        kind, cols = layout(self.entry.dtype), self.matrix_shape[1]
        data = as_bytes(self.file[self.name].raw)
        if kind.name in _FLOATS:
            values: Block = data.view(_FLOATS[kind.name]).reshape(self.matrix_shape)
            return values[first:last]
        if isinstance(kind, Vbit):
            widths, scales, packed = kind.parts(data, self.shape)
            ends = row_ends(widths, cols // GROUP)
            start = int(ends[first - 1]) if first else 0
            rows = packed[start : int(ends[last - 1])]
            return native.vbit_decode(widths[first:last], scales[first:last], rows)
        if kind.row_records:
            spans = [data[p.offset + first * p.row_nbytes : p.offset + last * p.row_nbytes] for p in self._planes()]
            return native.decode_rows(kind, spans, last - first, cols)
        with self._lock:
            if self._decoded is None:
                self._decoded = native.decode(kind, data, self.shape).reshape(self.matrix_shape)
            return self._decoded[first:last]

    def release(self, first: int, last: int) -> None:
        if layout(self.entry.dtype).row_records:
            for plane in self._planes():
                self._drop(plane.offset + first * plane.row_nbytes, (last - first) * plane.row_nbytes)

    def forget(self) -> None:
        """Give back all memory of this tensor. It can be read again."""
        self._decoded = None
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

    def _planes(self) -> tuple[Plane, ...]:
        return layout(self.entry.dtype).planes(self.shape)

    def _drop(self, offset: int, nbytes: int) -> None:
        self.file.mapping.release(self.file.envelope.data.offset + self.entry.off + offset, nbytes)


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
        closers=(file,),
        file=file,
        entries=entries,
    )
