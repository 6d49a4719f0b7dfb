"""f16 (id 1): IEEE half, little-endian. Norms and 1-D tensors (SPEC 3.2).

bytes   [f16 : n]
value   nearest half, ties to even; ties among subnormal halves go away from zero, as upstream's writer rounds
size    2 n
shapes  any, scalars and empty tensors included
limits  a value that would round to infinity is refused
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.bits import F16_OVERFLOW, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.sizes import Shape, checked, element_count


class F16(RecordLayout):
    """One rounding."""

    id = 1
    name = "f16"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(2 * element_count(shape))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (2 * cols,)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW, "f16")
        return (f16_from_f32(values).view(np.uint8),)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        return f32_from_f16(np.ascontiguousarray(planes[0]).view(np.uint16))
