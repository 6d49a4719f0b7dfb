"""q8_row (id 3): int8 with one f16 scale per row (SPEC 3.2).

    bytes   [int8 : rows * cols][f16 : rows]
    value   w = q * scale[row]
    size    rows * cols + 2 rows
    shapes  2-D, not empty
    encode  scale = max(f16(absmax(row) / 127), 2^-14), q = clamp(rint(w / scale), -128, 127)

The scale is rounded to f16 first and the integers are chosen against the rounded one.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.bits import F16_OVERFLOW, F16_TINY, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.sizes import Shape, checked, matrix

_LEVELS = np.float32(127)


class Q8Row(RecordLayout):
    """``best`` and ``plain`` are the same."""

    id = 3
    name = "q8_row"

    def payload_nbytes(self, shape: Shape) -> int:
        rows, cols = matrix(shape, self.name)
        return checked(rows * cols + 2 * rows)

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (cols, 2)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW * _LEVELS, "the f16 scale of a q8_row")
        absmax = np.abs(values).max(axis=1, keepdims=True)
        scale = np.maximum(f32_from_f16(f16_from_f32(absmax / _LEVELS)), F16_TINY)
        quants = np.clip(np.rint(values / scale), -128, 127).astype(np.int8)
        return quants.view(np.uint8), f16_from_f32(scale).view(np.uint8)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        quants, scales = (np.ascontiguousarray(plane) for plane in planes)
        return quants.view(np.int8).astype(np.float32) * f32_from_f16(scales.view(np.uint16))
