"""Rotary embedding: native against NumPy, equal bits on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from cortiq import _native
from cortiq.errors import ShapeMismatch
from cortiq.ops import rope


@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (40, 13), (16, 8), (6, 1), (128, 16)])
def test_matches_reference(head_dim: int, half: int) -> None:
    rng = np.random.default_rng(head_dim)
    x = rng.standard_normal((5, 3, head_dim)).astype(np.float32)
    inv_freq = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
    expected = rope.reference(x, 1000, inv_freq, attention_factor=1.25)
    results = [rope.native(x, 1000, inv_freq, attention_factor=1.25, isa=isa) for isa in _native.supported_isas()]
    np.testing.assert_allclose(results[0], expected, atol=5e-7)
    np.testing.assert_array_equal(results[0][..., 2 * half :], x[..., 2 * half :])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_position_zero_changes_nothing() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 16)
    np.testing.assert_array_equal(rope.native(x, 0, np.ones(8, np.float32), isa="scalar"), x)


@pytest.mark.parametrize("half", [0, 5])
def test_wrong_frequencies(half: int) -> None:
    with pytest.raises(ShapeMismatch):
        rope.native(np.ones((1, 1, 8), np.float32), 0, np.ones(half, np.float32), isa="scalar")
