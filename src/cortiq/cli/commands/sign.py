"""``cortiq sign``: a detached signature beside a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, option, pass_console
from cortiq.errors import UsageError, printable

EPILOG = """
cortiq sign model.cmf --key ~/.ssh/id_ed25519
cortiq sign model.cmf --key release.key --new-key
cortiq verify model.cmf --pubkey 3b6a27bc...
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--key", default="cortiq-signing.key", help="Private key.  [default: cortiq-signing.key]")
@option("--new-key", is_flag=True, help="Make the key first; an existing file is left alone.")
@option("--force", is_flag=True, help="Replace an existing signature.")
@json_option
@pass_console
def sign(console: Console, model: str, key: str, new_key: bool, force: bool, as_json: bool) -> None:
    """Sign the .cmf file MODEL: write MODEL.sig beside it, and leave MODEL as it is.

    The key is an Ed25519 key of OpenSSH, or a file of 64 hexadecimal digits. The file is verified first.
    """
    from cortiq.cli.models import existing_file
    from cortiq.container import open_single, verify
    from cortiq.container.signature import sign as sign_file
    from cortiq.container.signing_keys import create_private_key, is_exposed, read_private_key

    path = Path(key).expanduser()
    with open_single(existing_file(model)) as file:
        with console.progress("verifying") as progress:
            verify(file, progress=progress.update).raise_first()
        if new_key:
            try:
                create_private_key(path)
            except FileExistsError as error:
                raise UsageError("there is a file by that name already", code="exists", path=str(path)) from error
            console.note(f"new signing key in {path}: keep it private, and keep it")
        elif not path.exists():
            raise UsageError("there is no such key; --new-key makes one", code="key", path=str(path))
        private = read_private_key(path, lambda: _passphrase(path))
        if is_exposed(path):
            console.warning(f"{printable(str(path))} can be read by others than its owner; chmod 600 is better")
        with console.progress("signing") as progress:
            signer = sign_file(file, private, force=force, progress=progress.update)
        shard = file.header.shard
    if shard is not None and shard.count > 1:
        console.note(f"file {shard.no} of a set of {shard.count}: each needs a signature of its own")
    if as_json:
        facts = {"path": str(file.path), "signature": str(signer.path)}
        console.json({**facts, "pubkey": signer.key.hex, "fingerprint": signer.key.fingerprint})
        return
    console.line(f"signed: {printable(str(signer.path))}")
    console.line(f"pubkey: {signer.key.hex}")
    console.line(f"fingerprint: {signer.key.fingerprint}")


def _passphrase(path: Path) -> str:
    """Asked for on the terminal; the first line of standard input when that is none."""
    if sys.stdin is not None and sys.stdin.isatty():
        answer: str = click.prompt(f"passphrase of {printable(str(path))}", hide_input=True, err=True)
        return answer
    return sys.stdin.readline().rstrip("\n") if sys.stdin is not None else ""
