"""Rounding to 16-bit floats and the refusal of weights that are no numbers. Knows no layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import NonFinite

F16_TINY = np.float32(2.0**-14)  # smallest normal half
F16_STEP = np.float32(2.0**-24)  # smallest half, and the distance of halves below F16_TINY
F16_MAX = np.float32(65504.0)
F16_OVERFLOW = np.float32(65520.0)  # this and beyond rounds to infinity
BF16_OVERFLOW = np.uint32(0x7F7F8000).view(np.float32)  # likewise

Floats = NDArray[np.float32]
Halves = NDArray[np.uint16]


def f16_from_f32(values: Floats) -> Halves:
    """Bits of the nearest half. Ties go to the even one, but away from zero below ``F16_TINY``.

    Too large a value becomes infinite: call ``require_f16_range`` before.
    """
    with np.errstate(over="ignore", under="ignore"):
        halves = values.astype(np.float16).view(np.uint16)
    magnitude = np.abs(values)
    steps = np.floor(magnitude.astype(np.float64) * 2.0**24 + 0.5)
    sign = np.signbit(values).astype(np.uint16) << np.uint16(15)
    subnormal = np.where(magnitude < F16_TINY, steps, 0).astype(np.uint16) | sign
    return np.where(magnitude < F16_TINY, subnormal, halves)


def f32_from_f16(halves: Halves) -> Floats:
    """Values of halves, exactly."""
    return halves.view(np.float16).astype(np.float32)


def as_f16_scale(scales: Floats) -> Floats:
    """The nearest half (ties to even) that is neither zero nor infinite, with the sign kept."""
    magnitude = np.clip(np.abs(scales), F16_STEP, F16_MAX).astype(np.float16).astype(np.float32)
    return np.copysign(magnitude, scales)


def bf16_from_f32(values: Floats) -> Halves:
    """Bits of the nearest bf16, ties to even. NaN is not handled: ``require_finite`` comes first."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


def f32_from_bf16(bits: Halves) -> Floats:
    """Values of bf16 numbers, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def require_finite(matrix: Floats) -> None:
    """Raise NonFinite.value naming the first weight of [rows, cols] that is NaN or infinite."""
    _refuse_first(matrix, ~np.isfinite(matrix), "is not finite", "value", "a finite number")


def require_magnitude(matrix: Floats, limit: np.float32 | Floats, what: str) -> None:
    """Raise NonFinite.range naming the first weight whose magnitude reaches ``limit``: ``what`` cannot hold it.

    ``limit`` is one number, or one of each row as [rows, 1].
    """
    bad = np.abs(matrix) >= limit
    if bad.any():
        smallest = np.broadcast_to(limit, matrix.shape)[bad][0]
        _refuse_first(matrix, bad, f"is too large for {what}", "range", f"below {smallest:g}")


def fits_f16(values: Floats) -> bool:
    """Whether every value rounds to a finite half. A 1-D tensor that does not is stored as f32."""
    return bool(np.all(np.abs(values) < F16_OVERFLOW))


def _refuse_first(matrix: Floats, bad: NDArray[np.bool_], problem: str, code: str, expected: str) -> None:
    if bad.any():
        row, col = (int(i) for i in np.unravel_index(int(np.argmax(bad)), matrix.shape))
        found = float(matrix[row, col])
        raise NonFinite(f"weight [{row}, {col}] {problem}", code=code, expected=expected, found=found)
