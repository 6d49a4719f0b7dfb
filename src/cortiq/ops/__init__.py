"""Operators of a model: equation, NumPy reference and native call, one module each."""

__all__: list[str] = []
