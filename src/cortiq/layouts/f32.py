"""f32 (id 0): IEEE single, little-endian.

bytes   [f32 : n]
size    4 n
shapes  any, scalars and empty tensors included
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.sizes import Shape, checked, element_count


class F32(RecordLayout):
    """Stored as it is."""

    id = 0
    name = "f32"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(4 * element_count(shape))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (4 * cols,)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        return (values.view(np.uint8),)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        return np.ascontiguousarray(planes[0]).view(np.float32)
