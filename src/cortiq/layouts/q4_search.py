"""Search of the scale of a group of 32 four-bit weights: the ``best`` encoder of layouts with nibbles and f16 scales.

For a scale s the integers are q = clamp(rint(w * (1 / s)), -8, 7). With A = sum(w q) and B = sum(q q) the squared error
is sum(w w) - s (2 A - s B), so the scale with the largest gain s (2 A - s B) wins, and A / B is the least-squares scale
of the integers at hand. The codes are asymmetric: the sign of s decides which side of the group reaches -8.

All arithmetic is f32 in the order written here, without fused multiply-adds: the native encoder repeats it operation
by operation and chooses the same scales.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Floats
from cortiq.layouts.bits import F16_MAX, F16_STEP

# The weight of largest magnitude is put on level -d, then on level d. Half a level around the ends of the code covers
# the useful scales; a grid ten times finer lowers the squared error of real weights by less than 0.1 %.
_LOW_LEVELS = (7.25, 7.5, 7.75, 8.0, 8.25, 8.5, 8.75, 9.0)
_HIGH_LEVELS = (6.25, 6.5, 6.75, 7.0, 7.25, 7.5, 7.75, 8.0)
FACTORS: Floats = np.float32(1) / np.array([-d for d in _LOW_LEVELS] + list(_HIGH_LEVELS), np.float32)


def best_scales(groups: Floats, scales: Floats) -> Floats:
    """The f16-rounded scale of smallest squared error found for each group.

    ``groups`` f32 [n, 32]; ``scales`` f32 [n], the scales to beat: a group keeps its own unless one is strictly better.
    """
    columns = np.ascontiguousarray(groups.T)
    extreme = groups[np.arange(len(groups)), np.abs(groups).argmax(axis=1)]
    best, (best_gain, _, _) = scales, _gain(columns, scales)
    for factor in FACTORS[:, None]:
        candidate = _as_f16_scale(extreme * factor)
        for refine in (True, False):
            gain, a, b = _gain(columns, candidate)
            better = gain > best_gain
            best, best_gain = np.where(better, candidate, best), np.where(better, gain, best_gain)
            if refine:
                candidate = _as_f16_scale(np.divide(a, np.maximum(b, 1), dtype=np.float32))
    return best


def _gain(columns: Floats, scales: Floats) -> tuple[Floats, Floats, Floats]:
    """Gain, A and B of one scale per group; ``columns`` is f32 [32, n]."""
    inverse = np.float32(1) / scales
    a, b = np.zeros_like(scales), np.zeros_like(scales)
    for column in columns:
        q = np.rint(np.clip(column * inverse, np.float32(-8), np.float32(7)))
        a += column * q
        b += q * q
    return scales * ((a + a) - scales * b), a, b


def _as_f16_scale(scales: Floats) -> Floats:
    """The nearest half (ties to even) that is neither zero nor infinite, with the sign kept."""
    magnitude = np.clip(np.abs(scales), F16_STEP, F16_MAX).astype(np.float16).astype(np.float32)
    return np.copysign(magnitude, scales)
