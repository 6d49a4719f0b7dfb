"""What is done with finished files: comparing, telling what they are, header fields, versions, compaction, repair."""

__all__: list[str] = []
