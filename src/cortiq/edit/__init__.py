"""What is done with finished files: comparing them, telling what they are."""

__all__: list[str] = []
