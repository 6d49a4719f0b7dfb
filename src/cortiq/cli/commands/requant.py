"""``cortiq requant``: a .cmf file in another precision."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cortiq.cli.commands.convert import convert_options, quant_options, resume_option, saying_what_is_kept
from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, option, pass_console
from cortiq.errors import UsageError

EPILOG = """
cortiq requant model.cmf --quant q4tp -o smaller.cmf
cortiq requant model.cmf --quant vbit --mean-bits 3.75 -o smaller.cmf
cortiq requant model.cmf --quant q4tp --in-place
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("file")
@option("--output", "-o", metavar="OUT", help="The file to write.")
@option("--in-place", is_flag=True, help="Replace FILE when the new one is complete.")
@option("-t", "--threads", type=click.IntRange(1, 1024), help="Encoder threads; the bytes are the same.")
@option("--force", is_flag=True, help="Replace an existing OUT.")
@resume_option
@quant_options("q4tp")
@json_option
@pass_console
def requant(console: Console, file: str, output: str | None, in_place: bool, **given: Any) -> None:
    """Write the model FILE with its matrices in another dtype; everything else is carried over.

    Precision that FILE does not have cannot come back: converting the checkpoint again gives a better file. The last
    line on standard output is the path of the new file.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit import requant as run

    if in_place == (output is not None):
        raise UsageError("either --output or --in-place says where to write", code="arguments")
    source = existing_file(file)
    target = None if output is None else Path(output).expanduser()
    with (
        saying_what_is_kept(console, target or source.resolve()),
        console.progress(f"encoding {source.name}") as progress,
    ):
        receipt = run(source, target, convert_options(given, source.name), progress=progress.update)
    if given["as_json"]:
        console.json({**asdict(receipt), "output": str(receipt.output)})
        return
    for line in receipt.lines():
        console.note(line)
    console.line(str(receipt.output))


__all__ = ["requant"]
