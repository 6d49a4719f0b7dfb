"""``cortiq compact``: a file written anew, without dead bytes and history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, in_place, in_place_options, json_option, option, pass_console
from cortiq.errors import UsageError

EPILOG = """
cortiq compact model.cmf
cortiq compact model.cmf --output small.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--output", "-o", metavar="OUT", help="Write here and leave MODEL as it is.")
@option("--force", is_flag=True, help="Replace an existing OUT.")
@in_place_options
@json_option
@pass_console
def compact(console: Console, model: str, output: str | None, force: bool, as_json: bool, **given: Any) -> None:
    """Write the .cmf file MODEL anew with its current version alone.

    Dead bytes and the other versions are gone. Every tensor is checked on the way; the old file is there until the
    new one is complete.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.compact import compact as write_anew

    path = existing_file(model)
    target = None if output is None else Path(output).expanduser()
    if target is not None and target.exists() and not force:
        raise UsageError("the output exists; --force replaces it", code="exists", path=str(target))
    with console.progress("compacting") as progress:
        sizes = write_anew(path, target, allowed=in_place(given), progress=progress.update)
    if as_json:
        console.json({"path": str(target or path), "bytes_before": sizes.before, "bytes_after": sizes.after})
    else:
        console.line(f"{human_bytes(sizes.before)} became {human_bytes(sizes.after)}")
