"""``cortiq log``: the versions a file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container.history import Version

EPILOG = """
cortiq log model.cmf
cortiq log model.cmf --json | jq '.versions[-1].what'
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@json_option
@pass_console
def log(console: Console, model: str, as_json: bool) -> None:
    """List the versions the .cmf file MODEL holds, the current one last.

    `cortiq undo` and `cortiq checkout` go to another one, `cortiq compact` keeps the current one alone.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.history import log as read_log

    path = existing_file(model)
    history = read_log(path)
    if as_json:
        versions = [_record(version) for version in history.versions]
        console.json({"path": str(path), "complete": history.complete, "versions": versions})
        return
    rows = [[str(v.number), v.time or "", printable(_what(v))] for v in history.versions]
    console.table(["version", "made", "what"], rows, right=(0,))
    if not history.complete:
        console.warning("what was before version 1 cannot be read: its recovery record is damaged")


def _record(version: Version) -> dict[str, object]:
    return {"number": version.number, "time": version.time, "what": version.what, "same_as": version.same_as}


def _what(version: Version) -> str:
    return version.what or ("the oldest one known" if version.number == 1 else "not noted")
