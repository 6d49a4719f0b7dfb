"""The estimate that decides between q8_row and q8_2f is the error that the two make in a product."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from builders.weights import heavy_tailed
from cortiq.layouts import layout
from cortiq.ops.linear import Matrix, reference
from cortiq.quantize.column_factors import SAMPLE_WEIGHTS, error_ratio, sample_spans


def squared_error(name: str, values: np.ndarray) -> float:
    """Of the product with white activations, in fast mode."""
    x = np.random.default_rng(1).standard_normal((200, values.shape[1])).astype(np.float32)
    kind = layout(name)
    y = reference(Matrix(kind.id, kind.encode(values), *values.shape), x)
    return float(((y - x.astype(np.float64) @ values.T.astype(np.float64)) ** 2).sum())


@pytest.mark.parametrize("loud", [1, 3, 10, 30])
@pytest.mark.parametrize("cols", [64, 250])
def test_the_estimate_is_near_the_true_ratio(loud: float, cols: int) -> None:
    values = heavy_tailed(100, cols)
    values[:, :: cols // 3] *= loud
    true = squared_error("q8_2f", values) / squared_error("q8_row", values)
    assert error_ratio(values) == pytest.approx(true, rel=0.2)


def test_columns_alike_gain_nothing_and_loud_ones_a_lot() -> None:
    values = np.random.default_rng(0).standard_normal((400, 128)).astype(np.float32)
    assert error_ratio(values) > 0.9
    values[:, 7] *= 30
    assert error_ratio(values) < 0.4


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_what_cannot_be_compared_stays(bad: float) -> None:
    values = np.zeros((4, 32), np.float32)
    values[2, 3] = bad
    assert error_ratio(values) == 1.0


@pytest.mark.parametrize(
    ("rows", "cols"), [(1, 1), (512, 64), (513, 64), (100_000, 4096), (5000, 70_000), (37, 1 << 21)]
)
def test_samples_are_spread_over_all_rows_and_bounded(rows: int, cols: int) -> None:
    spans = sample_spans(rows, cols)
    assert spans[0][0] == 0
    assert spans[-1][1] == rows
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    taken = sum(last - first for first, last in spans)
    assert taken <= 512
    assert taken * cols <= max(SAMPLE_WEIGHTS, 16 * cols)
