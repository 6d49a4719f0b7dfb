"""Dtypes that are known by their sizes and content rules but have no codec here (SPEC 3.2).

    id  name      bytes
     8  vbit      rows + 2 rows G + sum of the rows' cols b / 8                    b from the payload: 3, 4, 5, 6 or 8
    10  vbit_ro   as vbit, + 4 (rows + 1)
    15  q4tp      rows (16 G + 4 + ceil(5 G / 8))
    16  q2tp      rows (8 G + 4 + ceil(5 G / 8))     in published files, beyond the table of SPEC 3.1

G = cols / 32 groups in a row. Where the payload decides, ``payload_nbytes`` is the smallest size there can be and
``validate`` demands the exact one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Bounds, Parse
from cortiq.layouts.base import Bytes, Layout, Payload, as_bytes
from cortiq.layouts.sizes import Shape, ceil_div, checked, grouped_matrix

_U32_MAX = 2**32 - 1
_VBIT_WIDTHS = (3, 4, 5, 6, 8)


class _Undecoded(Layout):
    has_codec = False


class Vbit(_Undecoded):
    """Rows of 3 to 8 bits a weight."""

    id = 8
    name = "vbit"
    exact_size = False
    _offset_table = False

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        packed = rows * groups * 4 * min(_VBIT_WIDTHS)
        if self._offset_table and packed > _U32_MAX:
            raise Bounds("32-bit row offsets cannot reach all rows", code="size_overflow", found=packed)
        return checked(self._head_nbytes(rows, groups) + packed)

    def _head_nbytes(self, rows: int, groups: int) -> int:
        return rows + 2 * rows * groups + (4 * (rows + 1) if self._offset_table else 0)

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        data = as_bytes(payload)
        rows, groups = grouped_matrix(shape, self.name)
        widths = data[:rows].astype(np.int64)
        if not np.isin(widths, _VBIT_WIDTHS).all():
            row = int(np.argmin(np.isin(widths, _VBIT_WIDTHS)))
            found = int(widths[row])
            raise Parse(f"bit width of row {row}", code="vbit_bits", expected="3, 4, 5, 6 or 8", found=found)
        ends = np.cumsum(widths * (4 * groups))
        head = self._head_nbytes(rows, groups)
        if head + int(ends[-1]) != data.size:
            raise Bounds("packed rows", code="vbit_size", expected=head + int(ends[-1]), found=data.size)
        if self._offset_table:
            offsets = data[head - 4 * (rows + 1) : head].copy().view("<u4").astype(np.int64)
            if offsets[0] != 0 or not np.array_equal(offsets[1:], ends):
                raise Bounds("row offsets contradict the bit widths", code="vbit_offsets")


class VbitRo(Vbit):
    """vbit with a table of row offsets."""

    id = 10
    name = "vbit_ro"
    _offset_table = True


class Q4TP(_Undecoded):
    """q4_tiled nibbles; the scale of a group is a rung of its row's ladder."""

    id = 15
    name = "q4tp"
    _group_nbytes = 16
    _top_exponent = 31  # steps from the first to the last rung

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return checked(rows * (self._group_nbytes * groups + 4 + ceil_div(5 * groups, 8)))

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        rows, groups = grouped_matrix(shape, self.name)
        start = rows * groups * self._group_nbytes
        _check_ladders(as_bytes(payload)[start : start + 4 * rows], self._top_exponent)


class Q2TP(Q4TP):
    """Two-bit weights on the same ladder, whose first rung is zero."""

    id = 16
    name = "q2tp"
    _group_nbytes = 8
    _top_exponent = 30


def _check_ladders(params: Bytes, top_exponent: int) -> None:
    """Raise Parse.q4tp_ladder for a row whose (f16 lo, f16 step) is not finite or reaches beyond f32."""
    ladder: NDArray[np.float64] = params.copy().view("<f2").reshape(-1, 2).astype(np.float64)
    with np.errstate(invalid="ignore"):
        top = np.maximum(ladder[:, 0], ladder[:, 0] + top_exponent * ladder[:, 1])
    bad = ~np.isfinite(ladder).all(axis=1) | (top > 127)
    if bad.any():
        raise Parse(f"scale ladder of row {int(np.argmax(bad))}", code="q4tp_ladder")
