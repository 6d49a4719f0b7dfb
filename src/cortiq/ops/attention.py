"""Causal attention with grouped query heads, window and softcap (SPEC 4.1, 4.2).

Query head h uses kv head ``h // (heads // kv_heads)``. For a query at position p and keys j <= p (with a window w, only
j > p - w):

    s_j = scale * <q, k_j>        softcap c > 0: s_j = c * tanh(s_j / c)
    out = sum_j softmax(s)_j v_j

Keys and values pass through the cache, so they are rounded to its type first.
"""

from __future__ import annotations

from typing import Required, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from cortiq.native import core

__all__ = ["Options", "native", "reference"]

F32 = NDArray[np.float32]


def reference(
    q: F32, k: F32, v: F32, *, scale: float, window: int = 0, softcap: float = 0.0, kv_dtype: str = "f16"
) -> F32:
    """Attention of the last ``n`` positions: f32 ``q[n, heads, head_dim]`` over ``k, v[t, kv_heads, head_dim]``.

    ``n <= t``; query i is at position ``t - n + i``. Computed in f64, returned as f32 ``[n, heads, head_dim]``.
    """
    (n, heads, _), (t, kv_heads, _) = q.shape, k.shape
    if kv_dtype == "f16":
        k, v = k.astype(np.float16), v.astype(np.float16)
    group = heads // kv_heads
    keys = np.repeat(k.astype(np.float64), group, axis=1)
    values = np.repeat(v.astype(np.float64), group, axis=1)
    score = np.einsum("nhd,thd->hnt", q.astype(np.float64), keys) * scale
    if softcap:
        score = softcap * np.tanh(score / softcap)
    query, key = np.arange(t - n, t)[:, None], np.arange(t)[None, :]
    hidden = key > query
    if window:
        hidden |= key <= query - window
    score = np.where(hidden, -np.inf, score)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    result: F32 = np.einsum("hnt,thd->nhd", weight, values).astype(np.float32)
    return result


class Options(TypedDict, total=False):
    """Keyword arguments of ``reference``, with its defaults: ``scale`` must be given."""

    scale: Required[float]
    window: int
    softcap: float
    kv_dtype: str


def native(q: F32, k: F32, v: F32, *, isa: str, **options: Unpack[Options]) -> F32:
    """The same by the native core, through a paged cache of its own.

    Raises ShapeMismatch when the arrays do not belong together, UsageError for an unknown ``kv_dtype`` or ``isa``.
    """
    q, k, v = (np.ascontiguousarray(a) for a in (q, k, v))
    window, softcap = options.get("window", 0), options.get("softcap", 0.0)
    return core.attention(isa, q, k, v, options["scale"], window, softcap, options.get("kv_dtype", "f16"))
