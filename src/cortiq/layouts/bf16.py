"""bf16 (id 2): the upper half of an IEEE single, little-endian.

bytes   [bf16 : n]
value   nearest, ties to even
size    2 n
shapes  any, scalars and empty tensors included
limits  a value that would round to infinity is refused
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.bits import BF16_OVERFLOW, bf16_from_f32, f32_from_bf16, require_magnitude
from cortiq.layouts.sizes import Shape, checked, element_count


class BF16(RecordLayout):
    """One rounding."""

    id = 2
    name = "bf16"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(2 * element_count(shape))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (2 * cols,)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, BF16_OVERFLOW, "bf16")
        return (bf16_from_f32(values).view(np.uint8),)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        return f32_from_bf16(np.ascontiguousarray(planes[0]).view(np.uint16))
