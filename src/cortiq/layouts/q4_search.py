"""Search of the scale of a group of 32 four-bit weights: the ``best`` encoder of layouts with nibbles and f16 scales.

For a scale s the integers are q = clamp(rint(w * (1 / s)), -8, 7). The error of a weight w counts with its importance
v = sqrt(w w + m), m the mean square of the group: a model suffers more from errors of its large weights.

With A = sum(v w q) and B = sum(v q q) the weighted squared error is sum(v w w) - s (2 A - s B): the scale with the
largest gain s (2 A - s B) wins, and A / B is the least-squares scale of the integers at hand. The codes are asymmetric:
the sign of s decides which side of the group reaches -8.

All arithmetic is f32 in the order written here, without fused multiply-adds: the native encoder repeats it operation
by operation and chooses the same scales.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Floats
from cortiq.layouts.bits import as_f16_scale

# The weight of largest magnitude is put on level -d, then on level d. Half a level around the ends of the code covers
# the useful scales; a grid ten times finer lowers the squared error of real weights by less than 0.1 %.
_LOW_LEVELS = (7.25, 7.5, 7.75, 8.0, 8.25, 8.5, 8.75, 9.0)
_HIGH_LEVELS = (6.25, 6.5, 6.75, 7.0, 7.25, 7.5, 7.75, 8.0)
FACTORS: Floats = np.float32(1) / np.array([-d for d in _LOW_LEVELS] + list(_HIGH_LEVELS), np.float32)
_LEAST_SUM = np.finfo(np.float32).tiny


def best_scales(groups: Floats, scales: Floats) -> Floats:
    """The f16-rounded scale of smallest weighted squared error found for each group.

    ``groups`` f32 [n, 32]; ``scales`` f32 [n], the scales to beat: a group keeps its own unless one is strictly better.
    """
    columns = np.ascontiguousarray(groups.T)
    weights = importance(columns)
    weighted = columns * weights
    extreme = groups[np.arange(len(groups)), np.abs(groups).argmax(axis=1)]
    best, (best_gain, _, _) = scales, _gain(columns, weighted, weights, scales)
    for factor in FACTORS[:, None]:
        candidate = as_f16_scale(extreme * factor)
        for refine in (True, False):
            gain, a, b = _gain(columns, weighted, weights, candidate)
            better = gain > best_gain
            best, best_gain = np.where(better, candidate, best), np.where(better, gain, best_gain)
            if refine:
                candidate = as_f16_scale(np.divide(a, np.maximum(b, _LEAST_SUM), dtype=np.float32))
    return best


def importance(columns: Floats) -> Floats:
    """v of each weight of groups given as f32 [32, n]."""
    mean = np.zeros(columns.shape[1], np.float32)
    for column in columns:
        mean += column * column
    mean /= np.float32(len(columns))
    weights: Floats = np.sqrt(columns * columns + mean)
    return weights


def _gain(columns: Floats, weighted: Floats, weights: Floats, scales: Floats) -> tuple[Floats, Floats, Floats]:
    """Gain, A and B of one scale per group; the others are f32 [32, n]: w, v w and v."""
    inverse = np.float32(1) / scales
    a, b = np.zeros_like(scales), np.zeros_like(scales)
    for column, product, weight in zip(columns, weighted, weights, strict=True):
        q = np.rint(np.clip(column * inverse, np.float32(-8), np.float32(7)))
        a += product * q
        b += weight * (q * q)
    return scales * ((a + a) - scales * b), a, b
