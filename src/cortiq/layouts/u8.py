"""u8 (id 6): raw bytes, such as a configuration file or digests. Never a weight.

bytes   [u8 : n]
size    n
shapes  any, scalars and empty tensors included
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import UsageError
from cortiq.layouts.base import Bytes, Encoder, Floats, Layout
from cortiq.layouts.sizes import Shape, checked, element_count


class U8(Layout):
    """The payload is the value. ``encode`` takes u8; ``decode`` gives the numbers 0 to 255 as f32."""

    id = 6
    name = "u8"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(element_count(shape))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (cols,)

    def encode(self, values: NDArray[Any], *, encoder: Encoder = "best") -> bytes:
        """The bytes themselves. Raises UsageError for anything but u8."""
        if values.dtype != np.uint8:
            raise UsageError("u8 holds bytes, not weights", code="element_type", found=values.dtype.name)
        self.payload_nbytes(values.shape)
        return values.tobytes()

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        return planes[0].astype(np.float32)
