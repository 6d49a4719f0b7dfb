"""Shares of skills in a blend."""

from __future__ import annotations

import numpy as np
import pytest

from cortiq.engine.blend import blend_weights


@pytest.mark.parametrize("temperature", [0.05, 0.4, 3.0])
def test_the_softmax_of_the_negated_energies(temperature: float) -> None:
    energies = [0.31, 0.74, 0.12, 0.9]
    shares = np.exp(-np.array(energies) / temperature)
    assert np.allclose(blend_weights(energies, temperature), shares / shares.sum(), rtol=1e-12)


@pytest.mark.parametrize("energies", [[3.0, 1.0, 1.0], [1e300, 2.0], [-5.0, 700.0]])
def test_shares_are_whole_and_finite(energies: list[float]) -> None:
    for temperature in (0.0, 1e-300, 1e-3, 1.0, 1e300):
        weights = blend_weights(energies, temperature)
        assert np.isfinite(weights).all()
        assert weights.sum() == pytest.approx(1, abs=1e-15)
        assert weights[np.argmin(energies)] == weights.max()
