"""RMSNorm (SPEC 4.1).

    y_i = x_i / sqrt(mean(x^2) + eps) * w_i          norm style "qwen"
    y_i = x_i / sqrt(mean(x^2) + eps) * (1 + w_i)    norm style "gemma" (``plus_one``)

The mean is taken in f64 and the reciprocal root rounded to f32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.native import core

__all__ = ["native", "reference"]

F32 = NDArray[np.float32]


def reference(x: F32, weight: F32, eps: float, *, plus_one: bool = False) -> F32:
    """RMSNorm over the last axis of ``x`` (f32, any leading shape); ``weight`` f32 ``[x.shape[-1]]``."""
    mean = np.mean(np.square(x.astype(np.float64)), axis=-1, keepdims=True)
    inverse = (1.0 / np.sqrt(mean + np.float64(np.float32(eps)))).astype(np.float32)
    scaled = x * inverse * (np.float32(1) + weight if plus_one else weight)
    result: F32 = scaled.astype(np.float32)
    return result


def native(x: F32, weight: F32, eps: float, *, plus_one: bool = False, isa: str) -> F32:
    """The same by the native core; ``x`` is ``[rows, width]``.

    Raises ShapeMismatch when ``weight`` does not have ``width`` entries, UsageError for an unknown ``isa``.
    """
    return core.rmsnorm(isa, np.ascontiguousarray(x), np.ascontiguousarray(weight), eps, plus_one)
