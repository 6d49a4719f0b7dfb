"""Gate of the feed-forward unit, and the softcap of logits (SPEC 4.1).

    glu(gate, up)  = act(gate) * up
    silu(v)        = v / (1 + exp(-v))
    gelu_tanh(v)   = 0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))
    softcap(x)     = c tanh(x / c)

The native core writes gelu_tanh as ``v / (1 + exp(-2u))``, u the argument of tanh: the same function, without
cancellation for negative v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.native import core

__all__ = ["native", "native_softcap", "reference", "reference_softcap"]

F32 = NDArray[np.float32]


def reference(gate: F32, up: F32, *, act: str) -> F32:
    """``act(gate) * up``, elementwise; ``act`` is "silu" or "gelu_tanh". Computed in f64, returned as f32."""
    v = gate.astype(np.float64)
    u = np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)
    exponent = {"silu": v, "gelu_tanh": 2 * u}[act]
    with np.errstate(over="ignore"):
        gated = v / (1 + np.exp(-exponent))
    result: F32 = (gated * up).astype(np.float32)
    return result


def native(gate: F32, up: F32, *, act: str, isa: str) -> F32:
    """The same by the native core, over ``[rows, width]``.

    Raises ShapeMismatch when the shapes differ, UsageError for an unknown ``act`` or ``isa``.
    """
    return core.glu(isa, act, np.ascontiguousarray(gate), np.ascontiguousarray(up))


def reference_softcap(x: F32, cap: float, *, scale: float = 1.0) -> F32:
    """``cap * tanh(scale * x / cap)``; ``scale * x`` for cap 0."""
    scaled = x.astype(np.float64) * scale
    return (cap * np.tanh(scaled / cap) if cap else scaled).astype(np.float32)


def native_softcap(x: F32, cap: float, *, scale: float = 1.0, isa: str) -> F32:
    """The same by the native core, over one axis."""
    return core.softcap(isa, np.ascontiguousarray(x), scale, cap)
