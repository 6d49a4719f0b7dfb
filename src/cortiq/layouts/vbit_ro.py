"""vbit_ro (id 10): vbit with a table of where its rows begin (SPEC 3.2). What ``--quant vbit`` writes.

    bytes   [u8 bits : rows][f16 scales : rows * G][u32 offsets : rows + 1][packed rows], G = cols / 32
            offsets count from the first packed byte; the last one is the number of packed bytes
    size    4 (rows + 1) more than vbit

All else is as in ``vbit``.
"""

from __future__ import annotations

import numpy as np

from cortiq.errors import Bounds
from cortiq.layouts.base import Bytes, Payload, Survey, as_bytes
from cortiq.layouts.sizes import GROUP, Shape, grouped_matrix
from cortiq.layouts.vbit import Vbit, row_ends

_U32_MAX = 2**32 - 1


class VbitRo(Vbit):
    """A row is found without summing the widths before it."""

    id = 10
    name = "vbit_ro"

    def tail_head(self, rows: int, cols: int, survey: Survey) -> Bytes:
        offsets = np.zeros(rows + 1, "<u4")
        offsets[1:] = row_ends(survey, cols // GROUP)
        return offsets.view(np.uint8)

    def validate(self, payload: Payload, shape: Shape) -> None:
        """As in ``Vbit``, and Bounds.vbit_offsets for a table that contradicts the widths."""
        super().validate(payload, shape)
        data, (rows, groups) = as_bytes(payload), grouped_matrix(shape, self.name)
        head = self._head_nbytes(rows, groups)
        offsets = data[head - 4 * (rows + 1) : head].copy().view("<u4").astype(np.int64)
        if offsets[0] != 0 or not np.array_equal(offsets[1:], row_ends(data[:rows], groups)):
            raise Bounds("row offsets contradict the bit widths", code="vbit_offsets")

    def _head_nbytes(self, rows: int, groups: int) -> int:
        return super()._head_nbytes(rows, groups) + 4 * (rows + 1)

    def _nbytes(self, rows: int, groups: int, bits: int) -> int:
        packed = 4 * groups * bits
        if packed > _U32_MAX:
            raise Bounds("32-bit row offsets cannot reach all rows", code="size_overflow", found=packed)
        return super()._nbytes(rows, groups, bits)
