"""q8_2f (id 9): int8 with one f16 scale per row and one per column (SPEC 3.2).

    bytes   [int8 : rows * cols][f16 scale : rows][f16 field : cols]
    value   w = (q * scale[row]) * field[col], in this order
    size    rows * cols + 2 rows + 2 cols
    shapes  2-D, not empty
    encode  field = max(f16(rms of the column), 2^-14),  v = w / field,
            scale = max(f16(absmax(v of the row) / 127), 2^-14),  q = clamp(rint(v / scale), -127, 127)

The mean square of a column is summed in f64: row after row in blocks of 256 rows, then block after block.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, Reader, RowLayout, Survey, widen
from cortiq.layouts.bits import F16_MAX, F16_OVERFLOW, F16_TINY, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.sizes import Shape, checked, matrix

_LEVELS = np.float32(127)
_SMALLEST = 1e-12
_SURVEY_ROWS = 256


class Q82F(RowLayout):
    """``best`` and ``plain`` are the same. The survey is the column field, u16 [cols] (the bits of halves)."""

    id = 9
    name = "q8_2f"
    surveyed = True

    def payload_nbytes(self, shape: Shape) -> int:
        rows, cols = matrix(shape, self.name)
        return checked(rows * cols + 2 * rows + 2 * cols)

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (cols, 2)

    def survey(self, read: Reader, rows: int, cols: int) -> Survey:
        total = np.zeros(cols)
        for first in range(0, rows, _SURVEY_ROWS):
            block = np.zeros(cols)
            for row in widen(read(first, min(first + _SURVEY_ROWS, rows))):
                wide = row.astype(np.float64)
                block += wide * wide
            total += block
        rms = np.maximum(np.sqrt(total / rows), _SMALLEST)
        field = np.where(rms < F16_MAX, rms, F16_MAX).astype(np.float32)  # what is no number is refused later
        return f16_from_f32(np.maximum(f32_from_f16(f16_from_f32(field)), F16_TINY))

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW, "the f16 column field of q8_2f")
        ratios = values / f32_from_f16(survey)
        absmax = np.maximum(np.abs(ratios).max(axis=1, keepdims=True), np.float32(_SMALLEST))
        scale = np.maximum(f32_from_f16(f16_from_f32(absmax / _LEVELS)), F16_TINY)
        quants = np.clip(np.rint(ratios / scale), -_LEVELS, _LEVELS).astype(np.int8)
        return quants.view(np.uint8), f16_from_f32(scale).view(np.uint8)

    def tail_head(self, rows: int, cols: int, survey: Survey) -> Bytes:
        return survey.view(np.uint8)

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        quants, rest = data[: rows * cols], np.ascontiguousarray(data[rows * cols :]).view(np.uint16)
        scale, field = f32_from_f16(rest[:rows]), f32_from_f16(rest[rows:])
        return (quants.view(np.int8).astype(np.float32).reshape(rows, cols) * scale[:, None]) * field
