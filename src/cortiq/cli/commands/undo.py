"""``cortiq undo``: the last change of a file taken back."""

from __future__ import annotations

from typing import Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, in_place, in_place_options, json_option, pass_console

EPILOG = """
cortiq undo model.cmf
cortiq log model.cmf && cortiq undo model.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@in_place_options
@json_option
@pass_console
def undo(console: Console, model: str, as_json: bool, **given: Any) -> None:
    """Take back the last change of the .cmf file MODEL, and the one before it the next time.

    What was taken back stays in the file: `cortiq checkout` brings it again.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.history import undo as take_back

    path = existing_file(model)
    version = take_back(path, in_place(given))
    if as_json:
        console.json({"path": str(path), "version": version.number})
    else:
        console.line(f"back to version {version.number}")
