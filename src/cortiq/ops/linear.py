"""Linear operator y = x W^T over weights in file layout (SPEC 3.2), and the definition of its exact bits.

Fast mode, quantized weights. A row of x is quantized in groups of 32 columns (zero padded):

    a_g = max |x|,  s_g = a_g / 127,  q = round_half_even(x * (127 / a_g))

s_g and q are 0 when a_g < 2^-100; s_g is NaN and q is 0 when the group holds an infinity or NaN. With v the integer
weights (q4_tiled: nibble - 8 with scale t_g per group; q8_row: t_g = 1 and scale u per row),

    d_g = sum_k v_gk q_gk  (exact),   lane[g % 8] = fma(d_g, t_g * s_g, lane[g % 8])  in the order of g
    y = (((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)) + 0) [* u]

q8_2f is q8_row with x * field, its column factors, in place of x.

Float weights, exact mode, and every dtype without kernels of its own (weights decoded to f32):

    lane[k % 16] = fma(w_k, x_k, lane[k % 16]),   lane[i] += lane[i + 8] for i < 8,   y = the same sum of eight

Everything is IEEE f32, so a result depends on one row of x and one row of W only, on every instruction set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import ShapeMismatch
from cortiq.layouts import LAYOUTS, layout
from cortiq.native import core

Floats = NDArray[np.float32]

GROUP = 32
_TINY = np.float32(2.0**-100)
_Q8_ROW, _Q8_2F, _Q4_TILED = 3, 9, 11


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weights [rows, cols] of dtype ``dtype`` (directory id) as they lie in a file; ``payload`` is bytes-like."""

    dtype: int
    payload: Any
    rows: int
    cols: int


def linear(
    matrix: Matrix, x: Floats, *, isa: str, mode: str = "fast", first_row: int = 0, end_row: int | None = None
) -> Floats:
    """x f32 [m, cols] -> y f32 [m, rows] by the native kernels; rows outside [first_row, end_row) are 0.

    Raises NativeMissing, UsageError for an unknown or unsupported isa or mode, UnsupportedFeature for a dtype without
    decoder, Bounds and Parse for a payload of another size or with content that does not decode, Bounds for rows out of
    range, ShapeMismatch for x of another width.
    """
    payload = _validated(matrix)
    end = -1 if end_row is None else end_row
    return core.linear(isa, mode, matrix.dtype, payload, matrix.rows, matrix.cols, x, first_row, end)


def gather(matrix: Matrix, row: int, *, isa: str) -> Floats:
    """One row of the matrix as f32 [cols]. Raises like :func:`linear`."""
    payload = _validated(matrix)
    return core.gather(isa, matrix.dtype, payload, matrix.rows, matrix.cols, row)


def slow_dtypes(isa: str) -> tuple[str, ...]:
    """Names of the dtypes that run on ``isa``, but without kernels of their own: rows are decoded to f32 first.

    Raises NativeMissing, UsageError for an unknown or unsupported isa.
    """
    weights = (kind for kind in LAYOUTS.values() if kind.name != "u8")
    return tuple(kind.name for kind in weights if not core.has_kernels(isa, kind.id))


def _validated(matrix: Matrix) -> Any:
    """The payload as the core needs it, after the content rules of the layouts that have any; sizes are its affair."""
    kind, shape = layout(matrix.dtype), (matrix.rows, matrix.cols)
    if kind.exact_size:
        return matrix.payload
    kind.validate(matrix.payload, shape)
    return kind.canonical(matrix.payload, shape)


def quantize(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """x f32 [m, k] -> q int8 [m, groups, 32], scale f32 [m, groups]: the activations of fast mode."""
    m, k = x.shape
    groups = -(-k // GROUP)
    padded = np.zeros((m, groups * GROUP), np.float32)
    padded[:, :k] = x
    grouped = padded.reshape(m, groups, GROUP)
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(grouped).all(axis=2))
    largest = np.abs(np.where(finite[..., None], grouped, 0)).max(axis=2)
    live = largest >= _TINY
    inverse = np.where(live, np.float32(127) / np.where(live, largest, 1), 0).astype(np.float32)
    q = np.rint(np.where(finite[..., None], grouped, 0) * inverse[..., None]).astype(np.int8)
    scale = np.where(live, largest / np.float32(127), 0).astype(np.float32)
    scale[~finite] = np.nan
    return q, scale


def reference(matrix: Matrix, x: Floats, *, mode: str = "fast") -> Floats:
    """x f32 [m, cols] -> y f32 [m, rows]: the definition above, bit for bit, unless f32 overflows on the way.

    Raises ShapeMismatch when x has another width than the matrix, UnsupportedFeature for a dtype without codec.
    """
    if x.ndim != 2 or x.shape[1] != matrix.cols:
        raise ShapeMismatch("x has another width than the matrix", expected=matrix.cols, found=x.shape)
    if mode == "fast" and matrix.dtype in (_Q8_ROW, _Q8_2F, _Q4_TILED):
        return _reference_int8(matrix, x)
    w = layout(matrix.dtype).decode(matrix.payload, (matrix.rows, matrix.cols))
    lanes = np.zeros((len(x), matrix.rows, 16), np.float32)
    padding = ((0, 0), (0, -matrix.cols % 16))
    columns, weights = np.pad(x, padding), np.pad(w, padding)
    for k in range(0, columns.shape[1], 16):
        lanes = fma(columns[:, None, k : k + 16], weights[None, :, k : k + 16], lanes)
    return _sum_of_eight(lanes[..., :8] + lanes[..., 8:])


def _reference_int8(matrix: Matrix, x: Floats) -> Floats:
    q, scale = quantize(x * _column_field(matrix))
    values, group_scale, row_scale = _integers(matrix)
    # Sums of 32 products below 2^14 are exact in f64: [groups, m, rows].
    dots = np.matmul(q.transpose(1, 0, 2).astype(np.float64), values.transpose(1, 2, 0).astype(np.float64))
    lanes = np.zeros((len(x), matrix.rows, 8), np.float32)
    for g in range(q.shape[1]):
        factor = scale[:, None, g] * group_scale[None, :, g]
        lanes[..., g % 8] = fma(dots[g].astype(np.float32), factor, lanes[..., g % 8])
    return _sum_of_eight(lanes) * row_scale


def _column_field(matrix: Matrix) -> Floats:
    """f32 [cols], ones for a layout without such factors."""
    if matrix.dtype != _Q8_2F:
        return np.ones(matrix.cols, np.float32)
    data = np.frombuffer(matrix.payload, np.uint8)
    return data[matrix.rows * (matrix.cols + 2) :].view("<f2").astype(np.float32)


def _integers(matrix: Matrix) -> tuple[NDArray[np.int8], Floats, Floats]:
    """Integer weights int8 [rows, groups, 32] (zero padded), group scales f32 [rows, groups], row scales f32 [rows]."""
    rows, groups = matrix.rows, -(-matrix.cols // GROUP)
    data = np.frombuffer(matrix.payload, np.uint8)
    values = np.zeros((rows, groups * GROUP), np.int8)
    ones = np.ones((rows, groups), np.float32)
    if matrix.dtype in (_Q8_ROW, _Q8_2F):
        values[:, : matrix.cols] = data[: rows * matrix.cols].view(np.int8).reshape(rows, matrix.cols)
        row_scale = data[rows * matrix.cols :][: 2 * rows].view("<f2").astype(np.float32)
        return values.reshape(rows, groups, GROUP), ones, row_scale
    tiles = data.reshape(rows, groups, 18)
    nibbles = tiles[..., 2:].astype(np.int8)
    values = np.stack([nibbles & 15, (nibbles >> 4) & 15], axis=-1).reshape(rows, groups, GROUP) - np.int8(8)
    scale = np.ascontiguousarray(tiles[..., :2]).view("<f2")[..., 0].astype(np.float32)
    return values, scale, ones[:, 0]


def _sum_of_eight(lane: Floats) -> Floats:
    low = (lane[..., 0] + lane[..., 4]) + (lane[..., 2] + lane[..., 6])
    high = (lane[..., 1] + lane[..., 5]) + (lane[..., 3] + lane[..., 7])
    return cast(Floats, (low + high) + np.float32(0))


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c rounded once to f32, for finite results.

    The product of two f32 is exact in f64. The f64 sum is made odd when it is inexact, so that rounding it to f32
    gives what rounding the exact sum would (Boldo and Melquiond, 2008).
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return cast(Floats, np.where(inexact, bits + toward, bits).view(np.float64).astype(np.float32))
