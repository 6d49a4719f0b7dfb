"""vbit (id 8): rows of 3, 4, 5, 6 or 8 bits a weight, with an f16 scale per 32 weights (SPEC 3.2).

    bytes   [u8 bits : rows][f16 scales : rows * G][packed rows], G = cols / 32
            a row is its integers u, b bits each, most significant bit first: 4 b G bytes
    value   w = (u - L) * scale, L = 2^(b - 1) - 1
    size    rows + 2 rows G + 4 G * sum of b; the smallest there can be has 3 bits throughout
    shapes  2-D, not empty, cols a multiple of 32
    encode  scale = max(f16(absmax / L), 2^-14), u = clamp(rint(w / scale) + L, 0, 2^b - 1)

``widths`` are the bits of each row. Who has only the tensor takes ``widths_of_rows``; budgets over several tensors are
those of ``cortiq.quantize.vbit_budget``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Bounds, Parse
from cortiq.layouts.base import Bytes, Encoder, Floats, Payload, Reader, RowLayout, Survey, as_bytes, widen
from cortiq.layouts.bits import (
    F16_OVERFLOW,
    F16_TINY,
    f16_from_f32,
    f32_from_f16,
    require_finite,
    require_magnitude,
)
from cortiq.layouts.sizes import GROUP, Shape, checked, grouped_matrix

WIDTHS = (3, 4, 5, 6, 8)
MEAN_BITS = 4.25
_BYTES_PER_BIT = 4  # of a group
_SURVEY_WEIGHTS = 1 << 20
_SMALLEST = np.float32(1e-12)
_MIDDLES = np.array([(a + b) / 2 for a, b in pairwise(WIDTHS)])


class Vbit(RowLayout):
    """``best`` and ``plain`` are the same. The survey is the widths, u8 [rows]; planes are widths and scales."""

    id = 8
    name = "vbit"
    exact_size = False
    surveyed = True
    long_tail = True

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return self._nbytes(rows, groups, rows * min(WIDTHS))

    def encoded_nbytes(self, shape: Shape, survey: Survey) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return self._nbytes(rows, groups, int(survey.sum(dtype=np.int64)))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return 1, cols // GROUP * 2

    def validate(self, payload: Payload, shape: Shape) -> None:
        """As ``Layout.validate``; Parse.vbit_bits for a width, Bounds.vbit_size for widths that need another size."""
        super().validate(payload, shape)
        data, widths = as_bytes(payload), as_bytes(payload)[: shape[0]]
        check_widths(widths)
        expected = self.encoded_nbytes(shape, widths)
        if expected != data.size:
            raise Bounds("packed rows", code="vbit_size", expected=expected, found=data.size)

    def survey(self, read: Reader, rows: int, cols: int) -> Survey:
        """Widths for a budget of this tensor alone, ``MEAN_BITS``."""
        step = max(_SURVEY_WEIGHTS // cols, 1)
        absmax = [np.abs(widen(read(first, min(first + step, rows)))).max(axis=1) for first in range(0, rows, step)]
        return widths_of_rows(amplitudes(np.concatenate(absmax)))

    def encode(self, values: NDArray[Any], *, encoder: Encoder = "best", widths: Bytes | None = None) -> bytes:
        """As ``Layout.encode``. ``widths`` u8 [rows] of 3, 4, 5, 6 or 8, else Parse.vbit_bits; None: of this tensor."""
        if widths is None:
            return super().encode(values, encoder=encoder)
        self.payload_nbytes(values.shape)
        matrix = widen(values)
        require_finite(matrix)
        check_widths(widths)
        rows, cols = matrix.shape
        tail = self.tail_head(rows, cols, widths), self.tail_rows(matrix, widths, 0)
        return b"".join(part.tobytes() for part in (*self.encode_block(matrix, encoder, widths), *tail))

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        limits = F16_OVERFLOW * zero_levels(survey)[:, None]
        require_magnitude(values, limits, f"the f16 scale of a {self.name} group")
        return survey, scale_rows(values, survey)

    def tail_rows(self, values: NDArray[Any], survey: Survey, first_row: int) -> Bytes:
        matrix, widths = widen(values), survey[first_row : first_row + len(values)]
        return pack_rows(matrix, widths, scale_rows(matrix, widths))

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        groups = cols // GROUP
        scales = data[rows : rows + 2 * rows * groups].reshape(rows, 2 * groups)
        return unpack_rows(data[self._head_nbytes(rows, groups) :], data[:rows], scales)

    def _head_nbytes(self, rows: int, groups: int) -> int:
        return rows + 2 * rows * groups

    def _nbytes(self, rows: int, groups: int, bits: int) -> int:
        return checked(self._head_nbytes(rows, groups) + _BYTES_PER_BIT * groups * bits)


def check_widths(widths: Bytes) -> None:
    """Raise Parse.vbit_bits for a width that is not one of ``WIDTHS``."""
    wrong = ~np.isin(widths, WIDTHS)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise Parse(f"bit width of row {row}", code="vbit_bits", expected="3, 4, 5, 6 or 8", found=int(widths[row]))


def row_ends(widths: Bytes, groups: int) -> NDArray[np.int64]:
    """Where each packed row ends."""
    return np.cumsum(widths.astype(np.int64) * (_BYTES_PER_BIT * groups))


def row_amplitudes(values: Floats) -> Floats:
    """log2 of the largest magnitude of each row, f32."""
    return amplitudes(np.abs(values).max(axis=1))


def amplitudes(absmax: Floats) -> Floats:
    """log2 of the largest magnitudes, not below 1e-12, rounded to f32 once. What is no number counts as 1."""
    known = np.where(np.isfinite(absmax), np.maximum(absmax, _SMALLEST), np.float32(1))  # it is refused later
    return np.log2(known.astype(np.float64)).astype(np.float32)


def nearest_widths(bits: NDArray[Any]) -> Bytes:
    """The nearest of 3, 4, 5, 6 and 8, the smaller one of two."""
    return np.array(WIDTHS, np.uint8)[np.searchsorted(_MIDDLES, bits)]


def widths_of_rows(levels: Floats, mean_bits: float = MEAN_BITS) -> Bytes:
    """Widths of a tensor that has its own budget: mean_bits + (amplitude - mean amplitude), to the nearest width.

    ``levels`` are the amplitudes [rows]. Their mean is an f32 sum in the order of the rows, divided by their number.
    """
    mean = np.cumsum(levels, dtype=np.float32)[-1] / np.float32(len(levels))
    return nearest_widths(np.float32(mean_bits) + (levels - mean))


def zero_levels(widths: Bytes) -> Floats:
    """L of each width: the integer that stands for zero, and the steps to the largest weight."""
    return ((1 << (widths.astype(np.int64) - 1)) - 1).astype(np.float32)


def scale_rows(values: Floats, widths: Bytes) -> Bytes:
    """u8 [rows, 2 G]: the scales as halves."""
    absmax = np.abs(values.reshape(len(values), -1, GROUP)).max(axis=2)
    scales = np.maximum(f32_from_f16(f16_from_f32(absmax / zero_levels(widths)[:, None])), F16_TINY)
    return f16_from_f32(scales).view(np.uint8)


def pack_rows(values: Floats, widths: Bytes, scales: Bytes) -> Bytes:
    """The packed rows, one after the other, at given widths and scales."""
    steps = f32_from_f16(scales.view(np.uint16)).repeat(GROUP, axis=1)
    zero = zero_levels(widths)[:, None]
    codes = np.clip(np.rint(values / steps) + zero, np.float32(0), 2 * zero + 1).astype(np.uint8)
    rows = [_pack(codes[row], int(width)) for row, width in enumerate(widths)]
    return np.concatenate(rows)


def unpack_rows(packed: Bytes, widths: Bytes, scales: Bytes) -> Floats:
    """f32 [rows, cols] of packed rows."""
    groups = scales.shape[1] // 2
    ends = row_ends(widths, groups)
    rows = [_unpack(row, int(width)) for row, width in zip(np.split(packed, ends[:-1]), widths, strict=True)]
    steps = f32_from_f16(np.ascontiguousarray(scales).view(np.uint16)).repeat(GROUP, axis=1)
    return (np.stack(rows).astype(np.float32) - zero_levels(widths)[:, None]) * steps


def _pack(codes: Bytes, width: int) -> Bytes:
    return np.packbits(np.unpackbits(codes[:, None], axis=1)[:, 8 - width :])


def _unpack(packed: Bytes, width: int) -> Bytes:
    bits = np.unpackbits(packed).reshape(-1, width)
    return np.packbits(np.pad(bits, ((0, 0), (8 - width, 0))), axis=1)[:, 0]
