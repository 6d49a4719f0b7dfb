"""One operator per module: its equation, a NumPy reference, and the native call with the same result."""
