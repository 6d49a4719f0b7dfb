"""``cortiq convert`` and ``import-gguf``: a checkpoint becomes a .cmf file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, F, Gigabytes, json_option, option, pass_console, stacked
from cortiq.errors import UsageError

if TYPE_CHECKING:
    from cortiq.convert import ConvertOptions

CONVERT_EPILOG = """
cortiq convert ./SmolLM2-135M-Instruct smollm2.cmf
cortiq convert model.gguf model.cmf --quant q4_tiled
cortiq convert --model ./checkpoint --quant q4_tiled --output model.cmf
cortiq convert ./checkpoint model.cmf --tensor 'down_proj=q8_row' --dry-run
cortiq convert ./checkpoint model.cmf --shard-max-gb 20
cortiq convert ./checkpoint model.cmf --resume
"""
IMPORT_EPILOG = """
cortiq import-gguf model.gguf --output model.cmf
"""


def quant_options(default: str) -> Callable[[F], F]:
    """Which dtype each tensor gets: parameters quant, embed, head, tensor, encoder, mean_bits, route_stats."""
    group = "Precision"
    encoders = click.Choice(["best", "plain"])
    return stacked(
        option("--quant", group=group, default=default, show_default=True, help="Dtype of the layers' matrices."),
        option("--embed", group=group, metavar="DTYPE", help="Dtype of the embedding; same: as --quant."),
        option("--head", group=group, metavar="DTYPE", help="Dtype of the head; same: as --quant."),
        option("--tensor", group=group, metavar="REGEX=DTYPE", multiple=True, help="Dtype by name; repeatable."),
        option(
            "--encoder",
            group=group,
            type=encoders,
            default="best",
            show_default=True,
            help="Smallest error, or SPEC 3.2's formulas.",
        ),
        option("--mean-bits", group=group, type=float, help="Bits a weight of vbit, 3 to 8.  [default: 4.25]"),
        option("--route-stats", group=group, metavar="FILE", help="How often vbit experts are selected, as JSON."),
    )


def resume_option(function: F) -> F:
    """``--resume``; parameter ``resume``."""
    return option("--resume", is_flag=True, help="Keep what is done when interrupted; go on from what is kept.")(
        function
    )


def _work_options(function: F) -> F:
    return stacked(
        option("-t", "--threads", type=click.IntRange(1, 1024), help="Encoder threads; the bytes are the same."),
        option("--force", is_flag=True, help="Replace an existing file."),
        option("--dry-run", is_flag=True, help="Read the headers, say what would be written."),
        resume_option,
        option("--shard-max-gb", type=Gigabytes(), metavar="GB", help="Write a set of files, as `cortiq shard` does."),
    )(function)


@click.command(cls=Command, epilog=CONVERT_EPILOG)
@click.argument("source", metavar="[MODEL]", required=False)
@click.argument("target", metavar="[OUT]", required=False)
@option("--model", "model_option", metavar="MODEL", help="The source, as an option.")
@option("--output", "-o", "output_option", metavar="OUT", help="The file to write, as an option.")
@_work_options
@quant_options("q8_row")
@json_option
@pass_console
def convert(console: Console, source: str | None, target: str | None, **given: Any) -> None:
    """Make the .cmf file OUT from MODEL: a Hugging Face folder or repository, a known name, or a .gguf file.

    Embedding and head stay at 8 bits when --quant has fewer than 6. OUT appears when it is complete. What interrupts
    the command leaves nothing behind, or with --resume the tensors that were finished, in .OUT.partial beside OUT, from
    which the same command makes the same file. The last line on standard output is its path.
    """
    model = _one(source, given["model_option"], "MODEL")
    output = _one(target, given["output_option"], "OUT")
    _convert(console, model, Path(output).expanduser(), given)


@click.command("import-gguf", cls=Command, epilog=IMPORT_EPILOG)
@click.argument("gguf")
@option("--output", "-o", required=True, metavar="OUT", help="The file to write.")
@_work_options
@quant_options("q8_row")
@json_option
@pass_console
def import_gguf(console: Console, gguf: str, output: str, **given: Any) -> None:
    """Make the .cmf file OUT from a GGUF file; `cortiq convert` does the same."""
    if not Path(gguf).expanduser().is_file():
        raise UsageError("there is no such GGUF file", code="source", path=gguf)
    _convert(console, gguf, Path(output).expanduser(), given)


def _one(positional: str | None, named: str | None, what: str) -> str:
    if positional is not None and named is not None:
        raise UsageError(f"{what} is given twice", code="arguments")
    chosen = positional if positional is not None else named
    if not chosen or chosen == "-":
        raise UsageError(f"{what} is missing" if not chosen else f"{what} must be a file", code="arguments")
    return chosen


def convert_options(given: dict[str, Any], source: str) -> ConvertOptions:
    """What the command line says about a conversion."""
    from cortiq.convert import ConvertOptions, parse_end, parse_overrides
    from cortiq.native import core
    from cortiq.quantize import parse_dtype, read_route_stats
    from cortiq.settings import Settings

    stats = given["route_stats"]
    return ConvertOptions(
        quant=parse_dtype(given["quant"]),
        embed=None if given["embed"] is None else parse_end(given["embed"]),
        head=None if given["head"] is None else parse_end(given["head"]),
        overrides=parse_overrides(given["tensor"]),
        mean_bits=given["mean_bits"],
        route_counts=None if stats is None else read_route_stats(Path(stats).expanduser()),
        encoder=given["encoder"],
        threads=given["threads"] or Settings.load().threads or core.usable_cpus(),
        force=given["force"],
        source_model=source,
        shard_bytes=given.get("shard_max_gb"),
        resume=given["resume"],
    )


@contextmanager
def saying_what_is_kept(console: Console, output: Path) -> Iterator[None]:
    """When the user or the system stops it: where what is finished of ``output`` is kept."""
    from cortiq.container.partial import partial_path

    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError):
        if partial_path(output).exists():
            console.hint(f"what is finished is kept in {partial_path(output)}; the same command goes on from there")
        raise


def _convert(console: Console, model: str, output: Path, given: dict[str, Any]) -> None:
    from cortiq.cli.models import source_of
    from cortiq.convert import convert as run

    source, origin = source_of(model, console)
    options = convert_options(given, origin)
    if given["dry_run"]:
        _plan(console, source, output, options, as_json=given["as_json"])
        return
    with saying_what_is_kept(console, output), console.progress(f"converting {source.name}") as progress:
        receipt = run(source, output, options, progress=progress.update)
    if given["as_json"]:
        console.json({**asdict(receipt), "output": str(receipt.output)})
        return
    for line in receipt.lines():
        console.note(line)
    console.line(str(receipt.output))


def _plan(console: Console, source: Path, output: Path, options: ConvertOptions, *, as_json: bool) -> None:
    from cortiq.container.shard_writer import deal_out
    from cortiq.convert.plan import plan_tensors
    from cortiq.convert.sources import open_source

    with open_source(source) as opened:
        planned = plan_tensors(opened, options)
        arch = str(opened.arch["arch_name"])
    shapes = [entry.tensor.shape for entry in planned]
    files = 1 if options.shard_bytes is None else len(deal_out(shapes, options.shard_bytes))
    counts = Counter(entry.dtype for entry in planned)
    sizes = {kind: sum(entry.nbytes for entry in planned if entry.dtype == kind) for kind in counts}
    if as_json:
        document = {"dry_run": True, "output": str(output), "files": files, "arch_name": arch, "tensors": len(planned)}
        console.json({**document, "dtypes": dict(counts), "dtype_bytes": sizes, "bytes": sum(sizes.values())})
        return
    of = "" if options.shard_bytes is None else f" in {files} files"
    console.line(f"{output}: {arch}, {len(planned)} tensors, {human_bytes(sum(sizes.values()))} of weights{of}")
    for kind, count in counts.most_common():
        console.line(f"{kind:9} {count:5} tensors  {human_bytes(sizes[kind]):>10}")
    for note in (entry.note for entry in planned if entry.note):
        console.note(f"note: {note}")


__all__ = ["convert", "convert_options", "import_gguf", "quant_options", "resume_option", "saying_what_is_kept"]
