"""``cortiq repair``: the last whole version of a file that does not open."""

from __future__ import annotations

from typing import Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, in_place, in_place_options, json_option, pass_console
from cortiq.errors import HashMismatch, printable

EPILOG = """
cortiq repair model.cmf
cortiq repair model.cmf --json && cortiq verify model.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@in_place_options
@json_option
@pass_console
def repair(console: Console, model: str, as_json: bool, **given: Any) -> int:
    """Bring back the last whole version of the .cmf file MODEL, which does not open.

    Only a file that was changed in place has one: a change leaves a recovery record. Says what is lost. Exit code 4
    when tensors of the version are damaged, 3 when no version opens.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.repair import repair as bring_back

    path = existing_file(model)
    result = bring_back(path, in_place(given))
    if as_json:
        console.json(
            {
                "path": str(path),
                "repaired": result.repaired,
                "problem": result.problem and result.problem.kind,
                "lost": list(result.lost),
                "damaged": list(result.damaged),
            }
        )
    elif not result.repaired:
        console.line("nothing to repair: the file opens")
    else:
        console.line(f"repaired: {printable(str(result.problem))}")
        for what in result.lost:
            console.line(f"lost      {printable(what)}")
        for name in result.damaged:
            console.line(f"damaged   {printable(name)}")
    return HashMismatch.exit_code if result.damaged else 0
