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
from cortiq.layouts.base import Bytes, Encoder, Floats, Layout, Survey
from cortiq.layouts.sizes import Shape, checked, element_count


class U8(Layout):
    """The payload is the value. ``encode`` takes u8; ``decode`` gives the numbers 0 to 255 as f32."""

    id = 6
    name = "u8"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(element_count(shape))

    def plane_nbytes(self, rows: int, cols: int) -> tuple[int, ...]:
        return (rows * cols,)

    def encode(self, values: NDArray[Any], *, encoder: Encoder = "best") -> bytes:
        """The bytes themselves. Raises UsageError for anything but u8."""
        self.payload_nbytes(values.shape)
        return _checked(values).tobytes()

    def encode_block(self, values: NDArray[Any], encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        return (_checked(values),)

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        return data.reshape(rows, cols).astype(np.float32)


def _checked(values: NDArray[Any]) -> Bytes:
    if values.dtype != np.uint8:
        raise UsageError("u8 holds bytes, not weights", code="element_type", found=values.dtype.name)
    return values
