"""``cortiq verify``: every hash of a file, at memory speed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.models import existing_file
from cortiq.cli.params import Command, json_option, option
from cortiq.errors import VerificationError, printable

if TYPE_CHECKING:
    from cortiq.container import Report

EPILOG = """
cortiq verify model.cmf
cortiq verify model.cmf --strict --json
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--strict", is_flag=True, help="Warnings, and tensors or sections without a hash, are failures too.")
@option("-t", "--threads", type=click.IntRange(1, 1024), help="Threads that read and hash.")
@json_option
@click.pass_obj
def verify(console: Console, model: str, strict: bool, threads: int | None, as_json: bool) -> None:
    """Check every hash and the content of every tensor of the .cmf file MODEL.

    Exit code 4 when something differs, 3 when the file is not a valid one.
    """
