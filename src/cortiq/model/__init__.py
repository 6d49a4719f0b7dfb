"""What a model is, read from header and directory, and the native plan made of it (SPEC 2)."""

__all__: list[str] = []
