"""``cortiq shard``: a file as a set of smaller files."""

from __future__ import annotations

from pathlib import Path

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, Gigabytes, json_option, option, pass_console

EPILOG = """
cortiq shard model.cmf --max-gb 20
cortiq shard model.cmf --max-gb 20 -o parts/model
cortiq shard model-00001-of-00009.cmf --max-gb 80 -o larger
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("file")
@option("--max-gb", "max_bytes", type=Gigabytes(), required=True, metavar="GB", help="Size of a file, see above.")
@option("--output", "-o", metavar="OUT", help="What the names begin with.  [default: FILE without .cmf]")
@option("--force", is_flag=True, help="Replace files of the same names.")
@json_option
@pass_console
def shard(console: Console, file: str, max_bytes: int, output: str | None, force: bool, as_json: bool) -> None:
    """Write the model FILE as a set of files, OUT-00001-of-00005.cmf and so on.

    Each is a valid file of its own, and any of their names opens the model. Tensors are dealt out in their order; a
    weight counts four bytes whatever its dtype, as 10^9 bytes count a GB: files come out smaller than --max-gb when
    they are quantized. `cortiq merge` makes one file again. The last line on standard output is the path of the first.
    """
    from cortiq.cli.models import existing_file
    from cortiq.container.shard_writer import sets_beside
    from cortiq.edit.shard import shard as write_set

    source = existing_file(file)
    target = None if output is None else Path(output).expanduser()
    with console.progress(f"writing {source.name} in parts") as progress:
        written = write_set(source, target, max_bytes, force=force, progress=progress.update)
    if as_json:
        files = [{"path": str(path), "bytes": path.stat().st_size} for path in written.paths]
        console.json({"set": written.set, "files": files})
        return
    console.note(f"{len(written.paths)} files, {human_bytes(written.size)}")
    for path in sets_beside(written.paths):
        console.note(f"{path} is of another set and was left there")
    console.line(str(written.paths[0]))
