"""One module per command. A module holds one or more click commands, named in the table of ``cortiq.cli.group``."""

__all__: list[str] = []
