"""``cortiq merge``: a set of files as one file."""

from __future__ import annotations

from pathlib import Path

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, json_option, option, pass_console

EPILOG = """
cortiq merge model-00001-of-00005.cmf
cortiq merge model-00001-of-00005.cmf -o whole.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("first")
@option("--output", "-o", metavar="OUT", help="The file to write.  [default: the name of the set and .cmf]")
@option("--force", is_flag=True, help="Replace an existing file.")
@json_option
@pass_console
def merge(console: Console, first: str, output: str | None, force: bool, as_json: bool) -> None:
    """Write the set of files that FIRST, or any other of them, belongs to as one .cmf file.

    The others are found by their names. Every tensor is checked on the way. Do not join the files with `cat`. The last
    line on standard output is the path of the new file.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.shard import merge as write_one

    path = existing_file(first)
    target = None if output is None else Path(output).expanduser()
    with console.progress("merging") as progress:
        written = write_one(path, target, force=force, progress=progress.update)
    size = written.stat().st_size
    if as_json:
        console.json({"path": str(written), "bytes": size})
        return
    console.note(f"one file of {human_bytes(size)}")
    console.line(str(written))
