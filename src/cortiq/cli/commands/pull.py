"""``cortiq pull``: brings a model and makes it a .cmf file."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, option, pass_console, quant_option
from cortiq.errors import UsageError

EPILOG = """
cortiq pull smollm2
cortiq pull smollm2 --quant q8_row --output smollm2.cmf
cortiq info "$(cortiq pull qwen2.5-coder-0.5b)"
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@quant_option
@option("--output", "-o", metavar="OUT", help="Write here instead of below CORTIQ_HOME.")
@option("--force", is_flag=True, help="Replace an existing file, download and convert again.")
@json_option
@pass_console
def pull(console: Console, model: str, quant: str, output: str | None, force: bool, as_json: bool) -> None:
    """Download MODEL, a known name or a Hugging Face repository, and make it a .cmf file.

    The last line on standard output is its path.
    """
    from cortiq.cli.models import kept_file, make
    from cortiq.quantize import parse_dtype

    dtype = parse_dtype(quant)
    kept = kept_file(model, dtype)
    target = kept if output is None else Path(output).expanduser()
    if output is not None and target.exists() and not force:
        raise UsageError("the output exists; --force replaces it", code="exists", path=str(target))
    if force or not kept.exists():
        make(model, dtype, target, console, force=force)
    elif output is not None:
        _copy(kept, target)
        console.note(f"copied {kept}")
    if as_json:
        console.json({"model": model, "dtype": dtype, "path": str(target), "size": target.stat().st_size})
    else:
        console.line(str(target))


def _copy(source: Path, target: Path) -> None:
    """Copy so that ``target`` appears complete or not at all."""
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
