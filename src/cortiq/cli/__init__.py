"""The command line: parses, prints and sets the exit code. It knows no model; only ``console`` prints."""

__all__: list[str] = []
