"""Attention: native against NumPy over ragged shapes, equal bits on every instruction set and for every split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cortiq import _native
from cortiq.errors import ShapeMismatch, UsageError
from cortiq.ops import attention

F32 = NDArray[np.float32]

# head_dim, heads, kv_heads, keys, queries, window, softcap
CASES = [
    (64, 3, 1, 100, 100, 0, 0.0),
    (16, 4, 4, 70, 3, 0, 5.0),
    (128, 7, 1, 97, 33, 40, 0.0),
    (20, 3, 1, 65, 65, 8, 0.0),
    (8, 2, 1, 1, 1, 0, 0.0),
    (6, 16, 2, 33, 9, 1, 0.0),
    (32, 5, 1, 64, 32, 32, 50.0),
    (32, 8, 1, 96, 1, 64, 0.0),
]


def arrays(head_dim: int, heads: int, kv_heads: int, keys: int, queries: int) -> tuple[F32, F32, F32]:
    rng = np.random.default_rng(keys)
    q = rng.standard_normal((queries, heads, head_dim)).astype(np.float32)
    k, v = (rng.standard_normal((keys, kv_heads, head_dim)).astype(np.float32) for _ in range(2))
    return 2 * q, k, v


@pytest.mark.parametrize("kv_dtype", ["f16", "f32"])
@pytest.mark.parametrize("case", CASES)
def test_matches_reference(case: tuple[int, int, int, int, int, int, float], kv_dtype: str) -> None:
    *shape, window, softcap = case
    q, k, v = arrays(*shape)
    options: dict[str, Any] = {"scale": shape[0] ** -0.5, "window": window, "softcap": softcap, "kv_dtype": kv_dtype}
    expected = attention.reference(q, k, v, **options)
    results = [attention.native(q, k, v, **options, isa=isa) for isa in _native.supported_isas()]
    np.testing.assert_allclose(results[0], expected, atol=4e-6)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("case", CASES)
def test_one_query_at_a_time_gives_the_same_bits(case: tuple[int, int, int, int, int, int, float]) -> None:
    *shape, window, softcap = case
    q, k, v = arrays(*shape)
    isa, n, t = _native.best_isa(), len(q), len(k)
    options: dict[str, Any] = {"scale": 0.3, "window": window, "softcap": softcap, "isa": isa}
    together = attention.native(q, k, v, **options)
    for i in range(n):
        end = t - n + i + 1
        alone = attention.native(q[i : i + 1], k[:end], v[:end], **options)
        np.testing.assert_array_equal(alone[0], together[i])


def test_later_keys_never_reach_a_query() -> None:
    q, k, v = arrays(32, 6, 2, 40, 40)
    isa = _native.best_isa()
    clean = attention.native(q, k, v, scale=0.2, isa=isa)
    k[30:], v[30:] = np.nan, np.inf
    np.testing.assert_array_equal(attention.native(q, k, v, scale=0.2, isa=isa)[:30], clean[:30])


def test_keys_before_the_window_never_reach_a_query() -> None:
    q, k, v = arrays(32, 6, 2, 40, 8)
    isa = _native.best_isa()
    clean = attention.native(q, k, v, scale=0.2, window=5, isa=isa)
    k[:28], v[:28] = np.nan, np.inf
    np.testing.assert_array_equal(attention.native(q, k, v, scale=0.2, window=5, isa=isa), clean)


def test_extreme_scores() -> None:
    q, k, v = arrays(16, 1, 1, 64, 1)
    for scale in (0.0, 1e4, -1e4):
        result = attention.native(q, k, v, scale=scale, isa=_native.best_isa())
        np.testing.assert_allclose(result, attention.reference(q, k, v, scale=scale), atol=1e-5)


def test_refusals() -> None:
    q, k, v = arrays(16, 4, 2, 8, 2)
    with pytest.raises(ShapeMismatch):
        attention.native(q[:, :3], k, v, scale=1.0, isa="scalar")
    with pytest.raises(ShapeMismatch):
        attention.native(q, k[:1], v[:1], scale=1.0, isa="scalar")
    with pytest.raises(ShapeMismatch):
        attention.native(q, k, v[:, :, :8], scale=1.0, isa="scalar")
    with pytest.raises(UsageError):
        attention.native(q, k, v, scale=1.0, window=-1, isa="scalar")
    with pytest.raises(UsageError):
        attention.native(q, k, v, scale=1.0, kv_dtype="q8", isa="scalar")
