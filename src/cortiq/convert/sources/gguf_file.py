"""A GGUF file: its metadata, and its tensors where they lie. Versions 2 and 3, little-endian.

The ``gguf`` package knows the block formats (``gguf_tensor``); its reader makes several objects of each token of the
vocabulary, which takes minutes and gigabytes, so the table of contents is read here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from cortiq.convert.mapped import MappedFile
from cortiq.errors import SourceError

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4
_MAX_DEPTH = 4
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY, _BOOL, _F32 = 8, 9, 7, 6
_SCALARS: Mapping[int, np.dtype[np.generic]] = {
    kind: np.dtype(name)
    for kind, name in {
        0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
    }.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufRecord:
    """A tensor in the file: ggml type, shape with rows first, absolute offset, bytes of all of it and of one row."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    row_nbytes: int


class GgufFile:
    """``metadata`` by key (numbers, bool, text, lists of these) and ``records`` by tensor name, in file order.

    A metadata number stored as f32 becomes the shortest decimal that reads back as the same f32. Raises SourceError
    (codes ``gguf``, ``gguf_version``, ``ggml_type``) for anything that is not a complete and consistent file.
    """

    def __init__(self, path: Path) -> None:
        self.map = MappedFile(path)
        reader = _Reader(self.map)
        if reader.take(4) != b"GGUF":
            raise reader.bad("it does not begin with GGUF")
        version = reader.u32()
        if version not in _VERSIONS:
            raise SourceError(
                "GGUF files of this version or byte order cannot be read",
                code="gguf_version",
                path=path.name,
                expected="2 or 3, little-endian",
                found=version,
            )
        tensors, keys = reader.u64(), reader.u64()
        self.metadata: dict[str, object] = {}
        for _ in range(keys):
            key = reader.text()
            if key in self.metadata:
                raise reader.bad(f"the key {key!r} occurs twice")
            self.metadata[key] = reader.value(reader.u32())
        infos = [reader.tensor_info() for _ in range(tensors)]
        self.records = _records(infos, reader, self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT))

    def close(self) -> None:
        """Unmap the file."""
        self.map.close()


@dataclass(frozen=True, slots=True)
class _Info:
    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


class _Reader:
    """A cursor over the map. Every method raises SourceError.gguf at the end of the file."""

    def __init__(self, source: MappedFile) -> None:
        self._bytes = source.array(0, source.size, np.dtype(np.uint8)).data
        self.size = source.size
        self._name = source.name
        self.position = 0

    def bad(self, what: str) -> SourceError:
        return SourceError(f"not a valid GGUF file: {what}", code="gguf", path=self._name, offset=self.position)

    def take(self, nbytes: int) -> bytes:
        end = self.position + nbytes
        if end > self.size:
            raise self.bad(f"{nbytes} bytes are announced, {self.size - self.position} are left")
        data = bytes(self._bytes[self.position : end])
        self.position = end
        return data

    def u32(self) -> int:
        found: int = _U32.unpack(self.take(4))[0]
        return found

    def u64(self) -> int:
        found: int = _U64.unpack(self.take(8))[0]
        return found

    def text(self) -> str:
        data = self.take(self.u64())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.bad("a text is not UTF-8") from error

    def value(self, kind: int, depth: int = 0) -> object:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(depth)
        return self._numbers(kind, 1)[0]

    def _array(self, depth: int) -> list[object]:
        if depth == _MAX_DEPTH:
            raise self.bad("arrays are nested too deeply")
        kind, count = self.u32(), self.u64()
        if kind not in (_STRING, _ARRAY):
            return self._numbers(kind, count)
        if count * 8 > self.size - self.position:
            raise self.bad(f"an array of {count} elements does not fit")
        return [self.value(kind, depth + 1) for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> list[object]:
        dtype = _SCALARS.get(kind)
        if dtype is None:
            raise self.bad(f"metadata of type {kind}")
        found = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind == _BOOL:
            return [bool(item) for item in found]
        if kind == _F32 and count == 1:
            return [float(str(found[0]))]
        items: list[object] = found.tolist()
        return items

    def tensor_info(self) -> _Info:
        name, ndim = self.text(), self.u32()
        if not 1 <= ndim <= _MAX_DIMS:
            raise self.bad(f"tensor {name!r} has {ndim} dimensions")
        dims = tuple(self.u64() for _ in range(ndim))
        return _Info(name, dims, self.u32(), self.u64())


def _records(infos: list[_Info], reader: _Reader, alignment: object) -> dict[str, GgufRecord]:
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.bad(f"an alignment of {alignment}")
    start = -(-reader.position // alignment) * alignment
    records: dict[str, GgufRecord] = {}
    for info in infos:
        if info.name in records:
            raise reader.bad(f"two tensors are called {info.name!r}")
        records[info.name] = _record(info, reader, start, alignment)
    return records


def _record(info: _Info, reader: _Reader, start: int, alignment: int) -> GgufRecord:
    try:
        kind = GGMLQuantizationType(info.kind)
    except ValueError as error:
        raise SourceError(
            "a ggml type that is not known", code="ggml_type", tensor=info.name, found=info.kind
        ) from error
    block, block_nbytes = GGML_QUANT_SIZES[kind]
    cols, *others = info.dims
    rows = 1
    for dim in others:
        rows *= dim
    if 0 in info.dims or cols % block:
        raise reader.bad(f"tensor {info.name!r} of {kind.name} has the dimensions {info.dims}")
    row_nbytes = cols // block * block_nbytes
    nbytes, offset = rows * row_nbytes, start + info.offset
    if info.offset % alignment or offset + nbytes > reader.size:
        raise reader.bad(f"tensor {info.name!r} lies at {offset} with {nbytes} bytes")
    return GgufRecord(kind, tuple(reversed(info.dims)), offset, nbytes, row_nbytes)
