"""Gated unit, softcap, exp and tanh: native against NumPy, equal bits on every instruction set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from cortiq import _native
from cortiq.errors import ShapeMismatch, UsageError
from cortiq.ops import ffn


def on_every_isa(call: Callable[[str], NDArray[np.float32]]) -> NDArray[np.float32]:
    results = [call(isa) for isa in _native.supported_isas()]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    return results[0]


@pytest.mark.parametrize("act", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("width", [1, 8, 13, 100])
def test_glu(act: str, width: int) -> None:
    rng = np.random.default_rng(width)
    gate = (6 * rng.standard_normal((4, width))).astype(np.float32)
    up = rng.standard_normal((4, width)).astype(np.float32)
    result = on_every_isa(lambda isa: ffn.native(gate, up, act=act, isa=isa))
    np.testing.assert_allclose(result, ffn.reference(gate, up, act=act), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("act", ["silu", "gelu_tanh"])
def test_glu_far_out(act: str) -> None:
    gate = np.array([[-1e4, -200, 200, 1e4, 0]], np.float32)
    result = on_every_isa(lambda isa: ffn.native(gate, np.ones_like(gate), act=act, isa=isa))
    np.testing.assert_array_equal(result, [[0, 0, 200, 1e4, 0]])


def test_glu_refuses() -> None:
    gate = np.ones((2, 8), np.float32)
    with pytest.raises(UsageError):
        ffn.native(gate, gate, act="relu", isa="scalar")
    with pytest.raises(ShapeMismatch):
        ffn.native(gate, gate[:1], act="silu", isa="scalar")


@pytest.mark.parametrize("cap", [0.0, 30.0])
def test_softcap(cap: float) -> None:
    x = np.linspace(-200, 200, 77, dtype=np.float32)
    result = on_every_isa(lambda isa: ffn.native_softcap(x, cap, scale=0.5, isa=isa))
    np.testing.assert_allclose(result, ffn.reference_softcap(x, cap, scale=0.5), rtol=4e-7)


def ulp_errors(result: NDArray[np.float32], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(result - exact) / np.spacing(np.abs(exact).astype(np.float32))


def test_exp_within_one_ulp() -> None:
    x = np.linspace(-87.3, 88.7, 40001, dtype=np.float32)
    result = on_every_isa(lambda isa: _native.exp(isa, x))
    assert ulp_errors(result, np.exp(x.astype(np.float64))).max() < 1


def test_exp_at_the_edges() -> None:
    x = np.array([-np.inf, -200, -103, -95, 0, 88.72, 88.73, 1e9, np.inf, np.nan], np.float32)
    result = on_every_isa(lambda isa: _native.exp(isa, x))
    with np.errstate(over="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1.5e-45)


def test_tanh_within_two_ulp() -> None:
    x = np.concatenate([np.linspace(-12, 12, 40000), np.logspace(-30, 0, 999)]).astype(np.float32)
    result = on_every_isa(lambda isa: _native.tanh(isa, x))
    exact = np.tanh(x.astype(np.float64))
    assert ulp_errors(result[exact != 0], exact[exact != 0]).max() < 2
    edges = np.array([-np.inf, np.inf, 0.0, np.nan], np.float32)
    np.testing.assert_array_equal(on_every_isa(lambda isa: _native.tanh(isa, edges)), [-1, 1, 0, np.nan])
