"""``cortiq checkout``: another version of a file made the current one."""

from __future__ import annotations

from typing import Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, in_place, in_place_options, json_option, pass_console

EPILOG = """
cortiq log model.cmf
cortiq checkout model.cmf 2
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@click.argument("version", type=click.IntRange(1))
@in_place_options
@json_option
@pass_console
def checkout(console: Console, model: str, version: int, as_json: bool, **given: Any) -> None:
    """Make VERSION, a number of `cortiq log`, the current version of the .cmf file MODEL.

    The other versions stay in the file.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.history import checkout as go_to

    path = existing_file(model)
    found = go_to(path, version, in_place(given))
    if as_json:
        console.json({"path": str(path), "version": found.number})
    else:
        console.line(f"now at version {found.number}")
