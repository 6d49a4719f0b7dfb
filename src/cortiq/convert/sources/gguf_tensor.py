"""The rows of a GGUF tensor as floats, in the order and with the norms of the original checkpoint.

llama.cpp's exporter changes two things, which are undone here: it interleaves the two halves of each rotated head
(rows 2r and 2r+1 of a head are rows r and hd/2 + r of the checkpoint), and it adds 1 to Gemma's norm weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Ggml
from numpy.typing import NDArray

from cortiq.convert.mapped import MappedFile
from cortiq.convert.names import Place
from cortiq.convert.source import Block, SourceTensor
from cortiq.convert.sources.gguf_file import GgufRecord
from cortiq.errors import UnsupportedFeature

_PLAIN: Mapping[Ggml, np.dtype[Any]] = {
    Ggml.F32: np.dtype("<f4"),
    Ggml.F16: np.dtype("<f2"),
    Ggml.BF16: np.dtype(ml_dtypes.bfloat16),
}
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Undo:
    """``head_dim`` of a tensor whose heads are interleaved, else 0; ``offset`` that was added to each value."""

    head_dim: int = 0
    offset: float = 0.0


class GgufTensor(SourceTensor):
    """A tensor of a GGUF. Raises UnsupportedFeature.ggml_type for a block format that cannot be decoded."""

    __slots__ = ("_decode", "_map", "_record", "_undo")

    def __init__(self, source: MappedFile, record: GgufRecord, place: Place, undo: Undo) -> None:
        super().__init__(place.name, place.source_name, record.shape, record.nbytes, place.rule)
        self._map = source
        self._record = record
        self._undo = undo
        self._decode = _decoder(record.kind, place.source_name)

    def read(self, first: int, last: int) -> Block:
        record, vector = self._record, len(self.shape) == 1
        raw = self._map.array(record.offset, record.nbytes, np.dtype(np.uint8)).reshape(-1, record.row_nbytes)
        if self._undo.head_dim and not vector:
            raw = raw[interleaved_rows(first, last, self._undo.head_dim)]
        else:
            raw = raw[first:last]
        values = self._decode(raw)
        if self._undo.head_dim and vector:
            values = values[:, interleaved_rows(0, self.shape[0], self._undo.head_dim)]
        if self._undo.offset:
            values = values.astype(np.float32) - np.float32(self._undo.offset)
        return values

    def release(self, first: int, last: int) -> None:
        if self._undo.head_dim:  # a block of rows is scattered over its heads
            first = first // self._undo.head_dim * self._undo.head_dim
        row_nbytes = self._record.row_nbytes
        self._map.release(self._record.offset + first * row_nbytes, (last - first) * row_nbytes)


def interleaved_rows(first: int, last: int, head_dim: int) -> NDArray[np.int64]:
    """Where an interleaved tensor holds rows first to last (exclusive) of the checkpoint."""
    rows = np.arange(first, last)
    within = rows % head_dim
    half = head_dim // 2
    source: NDArray[np.int64] = rows - within + np.where(within < half, 2 * within, 2 * (within - half) + 1)
    return source


def _decoder(kind: Ggml, name: str) -> Callable[[Bytes], Block]:
    """From u8 [rows, row_nbytes] to floats [rows, cols]."""
    if kind in _PLAIN:
        dtype = _PLAIN[kind]
        return lambda raw: np.ascontiguousarray(raw).view(dtype)
    block_nbytes = GGML_QUANT_SIZES[kind][1]
    try:
        quants.dequantize(np.zeros((1, block_nbytes), np.uint8), kind)
    except NotImplementedError as error:
        raise UnsupportedFeature(
            "this ggml type cannot be decoded", code="ggml_type", tensor=name, found=kind.name
        ) from error
    return lambda raw: quants.dequantize(raw, kind)
