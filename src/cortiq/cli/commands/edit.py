"""``cortiq edit``: header fields changed in place."""

from __future__ import annotations

from typing import Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, in_place, in_place_options, json_option, option, pass_console
from cortiq.errors import UsageError

EPILOG = """
cortiq edit model.cmf --set tokenizer_config.chat_template=@chat.jinja
cortiq edit model.cmf --set license=apache-2.0 --unset provenance.notes
cortiq edit model.cmf --set 'skills.0.name=SQL' && cortiq log model.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a field; repeatable.")
@option("--unset", "unset", metavar="NAME", multiple=True, help="Remove a field; repeatable.")
@in_place_options
@json_option
@pass_console
def edit(
    console: Console, model: str, assignments: tuple[str, ...], unset: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Change header fields of the .cmf file MODEL in place.

    NAME is a dotted path into the header; VALUE is JSON, else text; @FILE is the text of a file, or its JSON if it
    ends in .json. Some KiB are appended, whatever the size of the file; `cortiq undo` takes them back.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.metadata import edit_header, parse_assignment

    if not assignments and not unset:
        raise UsageError("nothing to do: name a field with --set or --unset", code="field")
    path = existing_file(model)
    before = path.stat().st_size
    _, changed = edit_header(path, dict(map(parse_assignment, assignments)), unset, in_place(given))
    grown = path.stat().st_size - before
    if as_json:
        console.json({"path": str(path), "changed": changed, "appended_bytes": grown})
    else:
        console.line(f"{grown} bytes appended" if changed else "unchanged: the header says so already")
