"""Dtypes that are known by their sizes and content rules but have no codec here (SPEC 3.2).

    id  name      bytes
     4  q4_block  18 ceil(n / 32), over the flattened tensor
     9  q8_2f     rows cols + 2 rows + 2 cols
    12  q1        6 rows G
    13  q1s       6 rows G + 4 + 6 count                                           count from the payload
    14  q1t       9 rows G + 4 (rows + 1) + 4 count                                count from the payload

G = cols / 32 groups in a row. Where the payload decides, ``payload_nbytes`` is the smallest size there can be and
``validate`` demands the exact one.
"""

from __future__ import annotations

import numpy as np

from cortiq.errors import Bounds, Parse
from cortiq.layouts.base import Layout, Payload, as_bytes
from cortiq.layouts.sizes import GROUP, Shape, ceil_div, checked, flat, grouped_matrix, matrix

_U16_MAX, _U32_MAX = 2**16 - 1, 2**32 - 1


class _Undecoded(Layout):
    has_codec = False


class Q4Block(_Undecoded):
    """Nibbles of the flattened tensor, then f16 scales."""

    id = 4
    name = "q4_block"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked(18 * ceil_div(flat(shape, self.name), GROUP))


class Q82F(_Undecoded):
    """int8 with a scale per row and one per column."""

    id = 9
    name = "q8_2f"

    def payload_nbytes(self, shape: Shape) -> int:
        rows, cols = matrix(shape, self.name)
        return checked(rows * cols + 2 * rows + 2 * cols)


class Q1(_Undecoded):
    """Sign bits with a scale per 32."""

    id = 12
    name = "q1"

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return checked(6 * rows * groups)


class Q1S(_Undecoded):
    """q1 and a list of outliers by flat index."""

    id = 13
    name = "q1s"
    exact_size = False

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        if rows * groups * GROUP > _U32_MAX + 1:
            raise Parse("32-bit outlier indices cannot reach all weights", code="q1s_too_large", found=tuple(shape))
        return checked(6 * rows * groups + 4)

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        data, head = as_bytes(payload), self.payload_nbytes(shape)
        count = int.from_bytes(data[head - 4 : head].tobytes(), "little")
        if head + 6 * count != data.size:
            raise Bounds("outliers", code="q1s_count", expected=head + 6 * count, found=data.size)
        indices = data[head:].reshape(count, 6)[:, :4].copy().view("<u4")
        if count and int(indices.max()) >= shape[0] * shape[1]:
            raise Bounds("an outlier outside the tensor", code="q1s_index", found=int(indices.max()))


class Q1T(_Undecoded):
    """Ternary tiles and a list of outliers per row."""

    id = 14
    name = "q1t"
    exact_size = False

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        if groups * GROUP > _U16_MAX:
            raise Parse("16-bit outlier columns cannot reach all columns", code="q1t_cols", found=groups * GROUP)
        return checked(9 * rows * groups + 4 * (rows + 1))

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        rows, cols = shape
        data, head = as_bytes(payload), self.payload_nbytes(shape)
        tiles, overlay = data[: head - 4 * (rows + 1)].reshape(-1, 9), data[head:]
        if int(tiles[:, 2:].max()) >= 3**5:
            raise Parse("a byte that is not five ternary digits", code="q1t_code", found=int(tiles[:, 2:].max()))
        starts = data[head - 4 * (rows + 1) : head].copy().view("<u4").astype(np.int64)
        if starts[0] != 0 or (np.diff(starts) < 0).any() or 4 * int(starts[-1]) != overlay.size:
            raise Bounds("outlier counts of the rows", code="q1t_row_ptr", found=int(starts[-1]))
        columns = overlay.reshape(-1, 4)[:, :2].copy().view("<u2")
        if columns.size and int(columns.max()) >= cols:
            raise Bounds("an outlier beyond the last column", code="q1t_col", found=int(columns.max()))
