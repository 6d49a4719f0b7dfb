"""The contract of a layout: how one dtype lies in the bytes of a tensor (SPEC 3.2).

The NumPy code of a layout is its definition. The native core gives the same bytes, faster (``cortiq.layouts.native``).
A layout knows nothing of files, names and models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Bounds, UnsupportedFeature, UsageError
from cortiq.layouts.bits import require_finite
from cortiq.layouts.sizes import Shape, rows_and_cols

Encoder = Literal["best", "plain"]
ENCODERS: tuple[Encoder, ...] = ("best", "plain")

Payload = bytes | bytearray | memoryview | NDArray[Any]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Plane:
    """A region of a payload that holds one record per row: row r is at ``offset + r * row_nbytes``."""

    offset: int
    row_nbytes: int


class Layout(ABC):
    """One dtype: its sizes, and for a dtype with a codec its encoder and decoder.

    ``id``          dtype byte of a directory record (SPEC 3.1)
    ``name``        the name SPEC 3.1 gives it
    ``exact_size``  False when the shape gives only the smallest size, the content the exact one
    ``row_records`` False when a payload is not one record per row and plane: no ``planes``, no blocks of rows
    ``has_codec``   False when only sizes and content rules are known; encode and decode then raise UnsupportedFeature
    """

    id: ClassVar[int]
    name: ClassVar[str]
    exact_size: ClassVar[bool] = True
    row_records: ClassVar[bool] = True
    has_codec: ClassVar[bool] = True

    @abstractmethod
    def payload_nbytes(self, shape: Shape) -> int:
        """Bytes of a tensor, or the least there can be when ``exact_size`` is False.

        Raises Parse for a shape the dtype cannot have (codes ``ndim``, ``ndim_dtype``, ``in_mod_32``, ``zero_dim``)
        and Bounds.size_overflow.
        """

    def check_nbytes(self, shape: Shape, nbytes: int) -> None:
        """Raise Bounds.nbytes unless a directory record of ``shape`` may say ``nbytes``; and as ``payload_nbytes``."""
        needed = self.payload_nbytes(shape)
        if nbytes < needed or (self.exact_size and nbytes != needed):
            expected = str(needed) if self.exact_size else f"at least {needed}"
            raise Bounds(f"wrong size of a {self.name} tensor", code="nbytes", expected=expected, found=nbytes)

    def validate(self, payload: Payload, shape: Shape) -> None:
        """Check everything a decoder relies on: sizes, and in the variable layouts widths, offsets and counts.

        Raises Parse or Bounds. Values are not judged: a scale may be anything.
        """
        self.check_nbytes(shape, as_bytes(payload).size)

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """The regions of a payload, each with one record per row of ``rows_and_cols(shape)``.

        A tensor too large for memory is encoded in blocks of rows with them. Raises as ``payload_nbytes``.
        """
        self.payload_nbytes(shape)
        rows, cols = rows_and_cols(shape)
        planes, offset = [], 0
        for row_nbytes in self.row_nbytes(cols):
            planes.append(Plane(offset, row_nbytes))
            offset += rows * row_nbytes
        return tuple(planes)

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        """Bytes of one row in each plane."""
        raise self.no_codec()

    def encode(self, values: NDArray[Any], *, encoder: Encoder = "best") -> bytes:
        """Payload of a tensor given as f32 (f16 and bf16 are widened first).

        ``plain`` is the formula of SPEC 3.2; ``best`` writes the same layout with a smaller squared error where the
        layout leaves a choice. Raises NonFinite for NaN, infinity and a value too large for the layout, UsageError
        for other element types, and as ``payload_nbytes``.
        """
        if encoder not in ENCODERS:
            raise UsageError("unknown encoder", code="encoder", expected=" or ".join(ENCODERS), found=encoder)
        self.payload_nbytes(values.shape)
        matrix = widen(values).reshape(rows_and_cols(values.shape))
        require_finite(matrix)
        return b"".join(plane.tobytes() for plane in self.encode_rows(matrix, encoder))

    def decode(self, payload: Payload, shape: Shape) -> Floats:
        """The tensor as f32. Raises what ``validate`` raises."""
        self.validate(payload, shape)
        data = as_bytes(payload)
        rows, cols = rows_and_cols(shape)
        records = [
            data[plane.offset : plane.offset + rows * plane.row_nbytes].reshape(rows, plane.row_nbytes)
            for plane in self.planes(shape)
        ]
        return self.decode_rows(records, cols).reshape(shape)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        """The definition: finite f32 [rows, cols] to u8 [rows, row_nbytes], one array per plane."""
        raise self.no_codec()

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        """The definition: u8 [rows, row_nbytes], one array per plane, to f32 [rows, cols]."""
        raise self.no_codec()

    def no_codec(self) -> UnsupportedFeature:
        """The error of a layout that is known by its sizes only."""
        return UnsupportedFeature(f"dtype {self.name} (id {self.id}) cannot be read or written yet", code="dtype")


def as_bytes(payload: Payload) -> Bytes:
    """A flat u8 view of a contiguous buffer."""
    if isinstance(payload, np.ndarray):
        return np.ascontiguousarray(payload).reshape(-1).view(np.uint8)
    return np.frombuffer(payload, dtype=np.uint8)


def widen(values: NDArray[Any]) -> Floats:
    """``values`` as contiguous f32, exactly. Accepts f32, f16 and bf16 (``ml_dtypes.bfloat16``), else UsageError."""
    if values.dtype == np.float32 or values.dtype == np.float16 or values.dtype.name == "bfloat16":
        return np.ascontiguousarray(values, dtype=np.float32)
    raise UsageError("weights must be f32, f16 or bf16", code="element_type", found=values.dtype.name)
