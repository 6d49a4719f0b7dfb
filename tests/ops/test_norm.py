"""RMSNorm: native against NumPy, equal bits on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from cortiq import _native
from cortiq.errors import ShapeMismatch, UsageError
from cortiq.ops import norm


@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 64, 577])
def test_matches_reference(width: int, plus_one: bool) -> None:
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((3, width)) * [[1e-3], [1], [1e4]]).astype(np.float32)
    weight = rng.standard_normal(width).astype(np.float32)
    expected = norm.reference(x, weight, 1e-5, plus_one=plus_one)
    results = [norm.native(x, weight, 1e-5, plus_one=plus_one, isa=isa) for isa in _native.supported_isas()]
    np.testing.assert_allclose(results[0], expected, rtol=3e-7)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_zero_row_stays_zero() -> None:
    zeros = np.zeros((1, 12), np.float32)
    assert not norm.native(zeros, np.ones(12, np.float32), 1e-6, isa="scalar").any()


def test_wrong_weight() -> None:
    with pytest.raises(ShapeMismatch):
        norm.native(np.ones((1, 8), np.float32), np.ones(7, np.float32), 1e-6, isa="scalar")


def test_unknown_isa() -> None:
    with pytest.raises(UsageError):
        norm.native(np.ones((1, 8), np.float32), np.ones(8, np.float32), 1e-6, isa="mmx")
