"""Token embedding (SPEC 4.1): row ``token`` of the embedding matrix, times ``scale`` (Gemma: sqrt(hidden_size))."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.native import core

__all__ = ["native", "reference"]

F32 = NDArray[np.float32]


def reference(weight: F32, tokens: NDArray[np.int32], *, scale: float = 1.0) -> F32:
    """f32 ``[len(tokens), cols]`` from the decoded matrix ``weight`` (f32 ``[rows, cols]``)."""
    rows = weight[tokens]
    return rows if scale == 1.0 else rows * np.float32(scale)


def native(
    weight: bytes | memoryview, shape: tuple[int, int], dtype: int, tokens: NDArray[np.int32], *, isa: str
) -> F32:
    """The rows decoded by the native core straight from the payload ``weight`` of dtype id ``dtype``, without scale."""
    rows, cols = shape
    return np.stack([core.gather(isa, dtype, weight, rows, cols, int(token)) for token in tokens])
