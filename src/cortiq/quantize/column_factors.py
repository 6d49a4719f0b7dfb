"""When a matrix that would be q8_row is better off as q8_2f, whose columns have factors of their own (decision 0009).

A column that is larger than the rest throughout sets the step of every row of q8_row; q8_2f takes it out. But then it
is in the activations, whose int8 groups of fast mode round the rest of a group the more. Rounding to a grid of step s
errs by s² / 12 on average. For white activations of mean square 1, and in units of 1 / (12 * 127²), a row w errs by

    q8_row   columns * max |w|²            +  sum_g  sqrt(32) * sum_{c in g} w_c²
    q8_2f    sum_c f_c² * max |w / f|²     +  sum_g  sqrt(sum_{c in g} f_c⁴) * sum_{c in g} (w_c / f_c)²

f being the factors and g the groups of 32 columns. The square root stands for the mean square of the largest activation
of a group: right for one column that outdoes the rest, and within a hundredth for normal ones that are alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.layouts import layout
from cortiq.layouts.base import Floats
from cortiq.layouts.bits import f32_from_f16
from cortiq.layouts.sizes import GROUP

ROW_SCALES, COLUMN_FACTORS = "q8_row", "q8_2f"
MOST_ERROR = 0.5  # half a bit is worth the multiplication of the activations
SAMPLE_BLOCKS, SAMPLE_ROWS, SAMPLE_WEIGHTS = 16, 32, 1 << 20


def sample_spans(rows: int, cols: int) -> list[tuple[int, int]]:
    """Blocks of rows, first to last (exclusive), that stand for a matrix: all of it, or 16 spread evenly."""
    block = max(1, min(SAMPLE_ROWS, SAMPLE_WEIGHTS // (SAMPLE_BLOCKS * cols)))
    if rows <= SAMPLE_BLOCKS * block:
        return [(0, rows)]
    starts = (i * (rows - block) // (SAMPLE_BLOCKS - 1) for i in range(SAMPLE_BLOCKS))
    return [(first, first + block) for first in starts]


def error_ratio(sample: Floats) -> float:
    """Expected squared error of q8_2f as a share of that of q8_row, for rows f32 [n, cols]; 1 where none is finite."""
    if not np.isfinite(sample).all() or not sample.any():
        return 1.0
    rows, cols = sample.shape
    field = f32_from_f16(layout(COLUMN_FACTORS).survey(lambda first, last: sample[first:last], rows, cols))
    ones = np.ones(cols)
    return _error(sample.astype(np.float64) / field, field.astype(np.float64)) / _error(sample.astype(np.float64), ones)


def _error(values: NDArray[np.float64], field: NDArray[np.float64]) -> float:
    """For weights values * field, of which the values are rounded row by row."""
    of_weights = (field**2).sum() * (values**2).max(axis=1).sum()
    padding = (0, -len(field) % GROUP)
    largest = np.sqrt((np.pad(field, padding).reshape(-1, GROUP) ** 4).sum(axis=1))
    energies = np.pad((values**2).sum(axis=0), padding).reshape(-1, GROUP).sum(axis=1)
    return float(of_weights + largest @ energies)
