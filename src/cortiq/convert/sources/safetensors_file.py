"""One .safetensors file: its directory, and the rows of its tensors straight from the map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from cortiq.container.strict_json import parse_json
from cortiq.convert.families import TensorRule
from cortiq.convert.mapped import MappedFile
from cortiq.convert.source import Block, SourceTensor
from cortiq.errors import Parse, SourceError

_MAX_HEADER = 100_000_000
_LENGTH_NBYTES = 8
DTYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# Every element type of the format, so that a record of one that cannot be converted is still checked.
_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor in the file: element type as the file names it, absolute offset."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class SafetensorsFile:
    """``records`` by name, in the order of their offsets.

    Raises SourceError.safetensors for anything but a complete, gapless and consistent file.
    """

    def __init__(self, path: Path) -> None:
        self.map = MappedFile(path)
        self.records = _read_records(self.map)

    def tensor(self, name: str, canonical: str, rule: TensorRule) -> SourceTensor:
        """Tensor ``name`` as a source. Raises SourceError.dtype for element types other than f32, f16 and bf16."""
        record = self.records[name]
        if record.dtype not in DTYPES:
            raise SourceError(
                "weights of this element type cannot be read",
                code="dtype",
                path=self.map.name,
                tensor=name,
                expected=", ".join(DTYPES),
                found=record.dtype,
            )
        return _SafetensorsTensor(self.map, record, canonical, name, rule)

    def close(self) -> None:
        """Unmap the file."""
        self.map.close()


class _SafetensorsTensor(SourceTensor):
    __slots__ = ("_dtype", "_map", "_record")

    def __init__(self, source: MappedFile, record: Record, name: str, source_name: str, rule: TensorRule) -> None:
        super().__init__(name, source_name, record.shape, record.nbytes, rule)
        self._map = source
        self._record = record
        self._dtype = DTYPES[record.dtype]

    def read(self, first: int, last: int) -> Block:
        offset, nbytes = self._span(first, last)
        rows = self._map.array(offset, nbytes, self._dtype).reshape(last - first, -1)
        return rows if rows.flags.aligned else rows.copy()

    def release(self, first: int, last: int) -> None:
        self._map.release(*self._span(first, last))

    def _span(self, first: int, last: int) -> tuple[int, int]:
        row_nbytes = self.matrix_shape[1] * self._dtype.itemsize
        return self._record.offset + first * row_nbytes, (last - first) * row_nbytes


def _read_records(source: MappedFile) -> dict[str, Record]:
    if source.size < _LENGTH_NBYTES:
        raise _bad(source, "shorter than its length field")
    length = int.from_bytes(source.array(0, _LENGTH_NBYTES, np.dtype(np.uint8)).tobytes(), "little")
    start = _LENGTH_NBYTES + length
    if length > _MAX_HEADER or start > source.size:
        raise _bad(source, f"a header of {length} bytes in a file of {source.size}")
    try:
        raw = source.array(_LENGTH_NBYTES, length, np.dtype(np.uint8)).tobytes()
        header = parse_json(raw, section="header", offset=_LENGTH_NBYTES)
    except Parse as error:
        raise _bad(source, f"its header is not JSON ({error.message})") from error
    if not isinstance(header, dict):
        raise _bad(source, "its header is not an object")
    metadata = header.get("__metadata__") or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _bad(source, "its metadata are not texts by name")
    records = [
        (name, _read_record(source, name, entry, start)) for name, entry in header.items() if name != "__metadata__"
    ]
    records.sort(key=lambda item: (item[1].offset, item[1].nbytes))
    end = start
    for name, record in records:
        if record.offset != end:
            raise _bad(source, f"{name!r} overlaps another tensor or leaves a gap")
        end += record.nbytes
    if end != source.size:
        raise _bad(source, f"its tensors end at {end}, the file at {source.size}")
    return dict(records)


def _read_record(source: MappedFile, name: str, entry: object, start: int) -> Record:
    if not isinstance(entry, dict):
        raise _bad(source, f"the record of {name!r} is not an object")
    dtype, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not _counts(shape) or not _counts(span) or len(span) != 2 or span[0] > span[1]:
        raise _bad(source, f"the record of {name!r} is malformed")
    nbytes = span[1] - span[0]
    if dtype not in _BITS:
        raise _bad(source, f"{name!r} is of the unknown type {dtype!r}")
    if 8 * nbytes != prod(shape) * _BITS[dtype]:
        raise _bad(source, f"{name!r} has {nbytes} bytes, which its shape {shape} does not")
    return Record(dtype, tuple(shape), start + span[0], nbytes)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _bad(source: MappedFile, what: str) -> SourceError:
    return SourceError(f"not a valid safetensors file: {what}", code="safetensors", path=source.name)
