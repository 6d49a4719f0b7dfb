"""The contract of a layout: how one dtype lies in the bytes of a tensor (SPEC 3.2).

The NumPy code of a layout is its definition. The native core gives the same bytes, faster (``cortiq.layouts.native``).
A layout knows nothing of files, names and models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Bounds, Parse, UsageError
from cortiq.layouts.bits import require_finite
from cortiq.layouts.sizes import Shape, rows_and_cols

Encoder = Literal["best", "plain"]
ENCODERS: tuple[Encoder, ...] = ("best", "plain")

Payload = bytes | bytearray | memoryview | NDArray[Any]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

Reader = Callable[[int, int], NDArray[Any]]
"""Rows first to last (exclusive) of a matrix of weights, as f32, f16 or bf16."""

Survey = NDArray[Any]
"""What an encoder must know of the whole tensor before it can encode a block of rows."""

NOTHING: Bytes = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Plane:
    """A region of a payload to which every block of rows contributes, in order."""

    offset: int
    nbytes: int


class Layout(ABC):
    """One dtype: its sizes, its encoder and decoder.

    A payload is its planes, to which every block of rows contributes, and then a tail. Most layouts have no tail and
    need nothing but the rows at hand; ``survey``, ``tail_head`` and ``tail_rows`` are for the others.

    ``id``          dtype byte of a directory record (SPEC 3.1)
    ``name``        the name SPEC 3.1 gives it
    ``exact_size``  False when the shape gives only the smallest size, the content the exact one
    ``surveyed``    True when the encoder needs a first pass over the tensor: ``survey``
    ``long_tail``   True when most of a payload is its tail: rows pass a second time for it, so that it is never kept
    """

    id: ClassVar[int]
    name: ClassVar[str]
    exact_size: ClassVar[bool] = True
    surveyed: ClassVar[bool] = False
    long_tail: ClassVar[bool] = False

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

    def canonical(self, payload: Payload, shape: Shape) -> Payload:
        """A validated payload in the order the native core needs: itself, or a copy where SPEC leaves it open."""
        return payload

    def oddities(self, payload: Payload, shape: Shape) -> Iterator[Parse]:
        """What a validated payload has that a decoder accepts and an encoder does not write, as Parse of some code.

        An order that SPEC leaves open, and bits that belong to no weight.
        """
        return iter(())

    def encoded_nbytes(self, shape: Shape, survey: Survey) -> int:
        """Bytes the encoder will write for a tensor of which ``survey`` was taken. Raises as ``payload_nbytes``."""
        return self.payload_nbytes(shape)

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """The planes of a payload; its tail begins where the last one ends. Raises as ``payload_nbytes``."""
        self.payload_nbytes(shape)
        planes, offset = [], 0
        for nbytes in self.plane_nbytes(*rows_and_cols(shape)):
            planes.append(Plane(offset, nbytes))
            offset += nbytes
        return tuple(planes)

    @abstractmethod
    def plane_nbytes(self, rows: int, cols: int) -> tuple[int, ...]:
        """What a block of ``rows`` rows takes in each plane."""

    def block_rows(self, cols: int) -> int:
        """Blocks begin on multiples of so many rows."""
        return 1

    def encode(self, values: NDArray[Any], *, encoder: Encoder = "best") -> bytes:
        """Payload of a tensor given as f32 (f16 and bf16 are widened first).

        ``plain`` is the formula of SPEC 3.2; ``best`` writes the same layout with a smaller error, of the kind the
        layout names, where it leaves a choice. Raises NonFinite for NaN, infinity and a value too large for the
        layout, UsageError for other element types, and as ``payload_nbytes``.
        """
        if encoder not in ENCODERS:
            raise UsageError("unknown encoder", code="encoder", expected=" or ".join(ENCODERS), found=encoder)
        self.payload_nbytes(values.shape)
        matrix = widen(values).reshape(rows_and_cols(values.shape))
        require_finite(matrix)
        survey = self.survey(lambda first, last: matrix[first:last], *matrix.shape)
        planes = self.encode_block(matrix, encoder, survey)
        tail = self.tail_head(*matrix.shape, survey), self.tail_rows(matrix, survey, 0)
        return b"".join(part.tobytes() for part in (*planes, *tail))

    def decode(self, payload: Payload, shape: Shape) -> Floats:
        """The tensor as f32. Raises what ``validate`` raises, and warns of no value: scales may be infinite or NaN."""
        self.validate(payload, shape)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.decode_payload(as_bytes(payload), *rows_and_cols(shape)).reshape(shape)

    def survey(self, read: Reader, rows: int, cols: int) -> Survey:
        """The first pass over a tensor, in blocks of rows; for most layouts there is none."""
        return NOTHING

    @abstractmethod
    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        """A block of rows, finite f32 [rows, cols], as u8 arrays, one per plane."""

    def tail_head(self, rows: int, cols: int, survey: Survey) -> Bytes:
        """The tail of a tensor as far as it does not come from single rows."""
        return NOTHING

    def tail_rows(self, values: NDArray[Any], survey: Survey, first_row: int) -> Bytes:
        """What the rows from ``first_row`` on add to the end of the tail."""
        return NOTHING

    @abstractmethod
    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        """A validated payload as f32 [rows, cols]."""

    def native_encoder(self, encoder: Encoder) -> str:
        """What the core calls this way of encoding."""
        return encoder


class RowLayout(Layout):
    """A layout each row of which takes the same bytes in a plane."""

    @abstractmethod
    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        """Bytes of one row in each plane."""

    def plane_nbytes(self, rows: int, cols: int) -> tuple[int, ...]:
        return tuple(rows * nbytes for nbytes in self.row_nbytes(cols))


class RecordLayout(RowLayout):
    """A layout whose rows are records: each is encoded and decoded by itself, and nothing follows them."""

    @abstractmethod
    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        """The definition: finite f32 [rows, cols] to u8 arrays, one per plane."""

    @abstractmethod
    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        """The definition: u8 [rows, row_nbytes], one array per plane, to f32 [rows, cols]."""

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        return self.encode_rows(values, encoder)

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        planes = zip(self.planes((rows, cols)), self.row_nbytes(cols), strict=True)
        return self.decode_rows([data[p.offset : p.offset + p.nbytes].reshape(rows, n) for p, n in planes], cols)


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
