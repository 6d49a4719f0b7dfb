"""Rotary position embedding, half-split pairs (SPEC 4.2).

With ``half = len(inv_freq)`` and ``a_i = position * inv_freq_i``, for i < half:

    y_i        = x_i cos(a_i) - x_{half+i} sin(a_i)
    y_{half+i} = x_{half+i} cos(a_i) + x_i sin(a_i)

Dimensions from ``2 * half`` on pass through. Cosines and sines are multiplied by ``attention_factor`` (YaRN). The angle
is an f32 product; its cosine and sine are rounded to f32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.native import core

__all__ = ["native", "reference"]

F32 = NDArray[np.float32]


def reference(x: F32, position: int, inv_freq: F32, *, attention_factor: float = 1.0) -> F32:
    """Rotates ``x`` (f32 ``[rows, heads, head_dim]``), whose first row is at ``position``."""
    positions = np.arange(position, position + x.shape[0], dtype=np.float32)
    angle = (positions[:, None] * inv_freq[None, :]).astype(np.float64)[:, None, :]
    cosine = np.cos(angle).astype(np.float32) * np.float32(attention_factor)
    sine = np.sin(angle).astype(np.float32) * np.float32(attention_factor)
    half = inv_freq.shape[0]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine, rest], axis=-1)


def native(x: F32, position: int, inv_freq: F32, *, attention_factor: float = 1.0, isa: str) -> F32:
    """The same by the native core.

    Raises ShapeMismatch when ``inv_freq`` is empty or has more than ``head_dim / 2`` entries.
    """
    return core.rope(isa, np.ascontiguousarray(x), position, np.ascontiguousarray(inv_freq), attention_factor)
