"""Changes to files that are there."""

__all__: list[str] = []
