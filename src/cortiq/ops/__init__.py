"""One operator per module: its equation, a NumPy reference, and the native call with the same result."""

from cortiq.ops import attention, embed, ffn, linear, norm, rope

__all__ = ["attention", "embed", "ffn", "linear", "norm", "rope"]
