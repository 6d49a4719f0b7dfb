"""Search of the scale of a row of 8-bit weights: the ``best`` encoder of q8_row.

For a scale s the integers are q = clamp(rint(w * (1 / s)), -128, 127), and the scale of smallest weighted squared error
sum(v (w - s q)^2) wins. The importance v = sqrt(w w + m), m the mean square of the row, is that of ``q4_search``.

All arithmetic is f32 in the order written here, without fused multiply-adds: the native encoder repeats it operation
by operation and chooses the same scales.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Floats
from cortiq.layouts.bits import as_f16_scale

LANES = 16
# The weight of largest magnitude is put on level -d, then on level d. Smaller scales, which cut it off, win in no row
# of the models measured.
_LEVELS = (126.0, 126.5, 127.0, 127.5, 128.0, 128.5, 129.0, 129.5)
FACTORS: Floats = np.float32(1) / np.array([-d for d in _LEVELS] + list(_LEVELS), np.float32)


def best_row_scales(rows: Floats, scales: Floats) -> Floats:
    """The f16-rounded scale of smallest weighted squared error found for each row.

    ``rows`` f32 [n, cols]; ``scales`` f32 [n], the scales to beat: a row keeps its own unless one is strictly better.
    """
    mean = lane_sums(rows * rows) / np.float32(rows.shape[1])
    weights = np.sqrt(rows * rows + mean[:, None])
    extreme = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    best, least = scales, _error(rows, weights, scales)
    for factor in FACTORS:
        candidate = as_f16_scale(extreme * factor)
        error = _error(rows, weights, candidate)
        better = error < least
        best, least = np.where(better, candidate, best), np.where(better, error, least)
    return best


def nearest_codes(rows: Floats, scales: Floats) -> Floats:
    """q of each weight, f32 [n, cols], for one scale per row."""
    codes: Floats = np.rint(np.clip(rows * (np.float32(1) / scales)[:, None], np.float32(-128), np.float32(127)))
    return codes


def lane_sums(terms: Floats) -> Floats:
    """Sum of each row of f32 [n, cols]: column i is added to sum i mod 16 in order, then halves are added."""
    padded = np.pad(terms, ((0, 0), (0, -terms.shape[1] % LANES)))
    sums = np.zeros((len(terms), LANES), np.float32)
    for first in range(0, padded.shape[1], LANES):
        sums += padded[:, first : first + LANES]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


def _error(rows: Floats, weights: Floats, scales: Floats) -> Floats:
    difference = rows - nearest_codes(rows, scales) * scales[:, None]
    return lane_sums(weights * (difference * difference))
