"""q1t (id 14): ternary weights with one f16 scale per 32, and outliers kept as f16 (SPEC 3.2).

    bytes   [tiles : rows * cols / 32][u32 row_ptr : rows + 1][(u16 column, f16 value) : row_ptr[rows]]
            a tile of 9: [f16 scale][7 bytes]; weight k is digit k % 5, base 3, of byte k / 5: 0, 1 (+) or 2 (-)
            row r has the outliers row_ptr[r] to row_ptr[r + 1]
    value   0, scale or -scale; an outlier is its f16 value
    size    9 * rows * cols / 32 + 4 (rows + 1) + 4 * row_ptr[rows]
    shapes  2-D, not empty, cols a multiple of 32 below 65536
    encode  no outliers. Of two candidates for a group the one with the smaller squared error, the first when equal:
            m = mean |w|; a) scale = max(f16(m), 2^-14), w is not 0 where |w| >= scale / 2
                          b) w is not 0 where |w| >= 0.7 m, scale = max(f16(mean |w| over those), 2^-14)
            Then all scales of a row are multiplied by sum(w q) / sum(q q), clamped to 0.5 .. 2, where q are the row's
            values so far, and stored as f16 without a floor.

Sums go over the weights in order: those of magnitudes in f32, those of squares and products in f64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cortiq.errors import Bounds, Parse
from cortiq.layouts.base import Bytes, Encoder, Floats, Payload, RowLayout, Survey, as_bytes
from cortiq.layouts.bits import F16_MAX, F16_OVERFLOW, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.q1 import Bits, mean_scale, sum_in_order
from cortiq.layouts.sizes import GROUP, Shape, checked, grouped_matrix

TILE_NBYTES = 9
_DIGITS = 5
_CODE_NBYTES = 7
_PADDED = 3 ** (GROUP % _DIGITS)  # the last byte of a group is less than this
_POWERS = 3 ** np.arange(_DIGITS)
_U16_MAX = 2**16 - 1
_ENTRY = np.dtype([("column", "<u2"), ("value", "<u2")])


class Q1T(RowLayout):
    """``best`` and ``plain`` are the same."""

    id = 14
    name = "q1t"
    exact_size = False

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        if groups * GROUP > _U16_MAX:
            raise Parse("16-bit outlier columns cannot reach all columns", code="q1t_cols", found=groups * GROUP)
        return checked(TILE_NBYTES * rows * groups + 4 * (rows + 1))

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        rows, cols = shape
        data, head = as_bytes(payload), self.payload_nbytes(shape)
        codes, overlay = data[: head - 4 * (rows + 1)].reshape(-1, TILE_NBYTES)[:, 2:], data[head:]
        if int(codes.max()) >= 3**_DIGITS:
            raise Parse("a byte that is not five ternary digits", code="q1t_code", found=int(codes.max()))
        starts = data[head - 4 * (rows + 1) : head].copy().view("<u4").astype(np.int64)
        if starts[0] != 0 or (np.diff(starts) < 0).any() or _ENTRY.itemsize * int(starts[-1]) != overlay.size:
            raise Bounds("outlier counts of the rows", code="q1t_row_ptr", found=int(starts[-1]))
        columns = overlay.view(_ENTRY)["column"]
        if columns.size and int(columns.max()) >= cols:
            raise Bounds("an outlier beyond the last column", code="q1t_col", found=int(columns.max()))

    def oddities(self, payload: Payload, shape: Shape) -> Iterator[Parse]:
        """Parse.q1t_padding for a group whose last byte has other digits than 0 behind its last weight."""
        rows, groups = grouped_matrix(shape, self.name)
        last = as_bytes(payload)[: TILE_NBYTES * rows * groups].reshape(rows, groups, TILE_NBYTES)[..., -1]
        if int(last.max()) >= _PADDED:
            row = int(np.argmax(last.max(axis=1) >= _PADDED))
            message = f"digits that belong to no weight are not 0, first in row {row}"
            facts = f"a last byte below {_PADDED}", int(last[row].max())
            yield Parse(message, code="q1t_padding", expected=facts[0], found=facts[1])

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (TILE_NBYTES * (cols // GROUP),)

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW, "the f16 scale of a q1t group")
        groups = values.reshape(len(values), -1, GROUP)
        scales, used = _candidates(groups)
        scales = np.minimum(scales * _correction(groups, scales, used)[:, None], F16_MAX)
        digits = np.where(used, np.where(groups >= 0, 1, 2), 0)
        padded = np.zeros((scales.size, _CODE_NBYTES * _DIGITS), np.int64)
        padded[:, :GROUP] = digits.reshape(-1, GROUP)
        tiles = np.empty((scales.size, TILE_NBYTES), np.uint8)
        tiles[:, :2] = f16_from_f32(scales).reshape(-1).view(np.uint8).reshape(-1, 2)
        tiles[:, 2:] = (padded.reshape(-1, _CODE_NBYTES, _DIGITS) * _POWERS).sum(axis=2)
        return (tiles.reshape(len(values), -1),)

    def tail_head(self, rows: int, cols: int, survey: Survey) -> Bytes:
        return np.zeros(4 * (rows + 1), np.uint8)

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        head = self.payload_nbytes((rows, cols))
        split = head - 4 * (rows + 1)
        tiles = data[:split].reshape(-1, TILE_NBYTES)
        scales = f32_from_f16(np.ascontiguousarray(tiles[:, :2]).view(np.uint16))
        digits = (tiles[:, 2:, None] // _POWERS % 3).reshape(len(tiles), -1)[:, :GROUP]
        values = np.choose(digits, (np.float32(0), scales, -scales)).astype(np.float32).reshape(rows, cols)
        entries = data[head:].view(_ENTRY)
        starts = data[split:head].copy().view("<u4").astype(np.int64)
        row = np.repeat(np.arange(rows), starts[1:] - starts[:-1])
        values[row, entries["column"]] = f32_from_f16(np.ascontiguousarray(entries["value"]))
        return values


def _candidates(groups: Floats) -> tuple[Floats, Bits]:
    """The better scale of every group of [rows, groups, 32], and which of its weights are not zero."""
    magnitudes = np.abs(groups)
    mean = np.asarray(sum_in_order(magnitudes) / np.float32(GROUP))
    scale_a = mean_scale(mean, np.float32(1))
    used_a = magnitudes >= np.float32(0.5) * scale_a[..., None]
    used_b = magnitudes >= np.float32(0.7) * mean[..., None]
    count = np.maximum(used_b.sum(axis=2), 1).astype(np.float32)
    scale_b = mean_scale(sum_in_order(np.where(used_b, magnitudes, np.float32(0))), count)
    better = _squared_error(groups, scale_b, used_b) < _squared_error(groups, scale_a, used_a)
    return np.where(better, scale_b, scale_a), np.where(better[..., None], used_b, used_a)


def _values(groups: Floats, scales: Floats, used: Bits) -> Floats:
    signed = np.where(groups >= 0, scales[..., None], -scales[..., None])
    return np.where(used, signed, np.float32(0))


def _squared_error(groups: Floats, scales: Floats, used: Bits) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    error = (groups - _values(groups, scales, used)).astype(np.float64)
    return np.asarray(np.add.accumulate(error * error, axis=2)[..., -1])


def _correction(groups: Floats, scales: Floats, used: Bits) -> Floats:
    """What the scales of each row are multiplied by, f32 [rows]."""
    values = _values(groups, scales, used).astype(np.float64).reshape(len(groups), -1)
    products = np.add.accumulate(values * groups.astype(np.float64).reshape(values.shape), axis=1)[:, -1]
    squares = np.add.accumulate(values * values, axis=1)[:, -1]
    fits = squares > 1e-20
    factor = np.clip(np.divide(products, squares, out=np.ones_like(squares), where=fits), 0.5, 2)
    return np.asarray(factor.astype(np.float32))
