"""``cortiq ppl``: perplexity of a text by llama.cpp's method, in llama.cpp's words."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, execution_options, json_option, option, pass_console, quant_option
from cortiq.errors import UsageError

if TYPE_CHECKING:
    from cortiq.engine.model import Model
    from cortiq.engine.perplexity import Perplexity

EPILOG = """
cortiq ppl model.cmf -f wiki.test.raw
cortiq ppl model.cmf -f wiki.test.raw --max-bytes 120000 --mode exact
zcat text.gz | cortiq ppl model.cmf -f - --json
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("-f", "--file", "source", required=True, metavar="FILE", help="The text, UTF-8; - is standard input.")
@option("-c", "--ctx", type=click.IntRange(4), default=512, show_default=True, help="Tokens of a chunk.")
@option("--chunks", type=click.IntRange(1), help="Score only so many chunks.")
@option("--max-bytes", type=click.IntRange(1), help="Use only the head of the text, cut at a character.")
@option("--method", type=click.Choice(["llama"]), default="llama", show_default=True, help="How to cut and score.")
@quant_option
@execution_options()
@json_option
@pass_console
def ppl(console: Console, model: str, as_json: bool, **given: Any) -> None:
    """Measure how well MODEL predicts a text.

    The text is cut into chunks of --ctx tokens; the second half of each is scored. Lower is better. Perplexities of
    different tokenizers do not compare; bits per byte do.
    """
    from cortiq.cli.models import load_model, resolve
    from cortiq.engine.perplexity import perplexity

    data = _read(given["source"], console)
    data = data if given["max_bytes"] is None else _head(data, given["max_bytes"])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("the text is not UTF-8", code="text", path=given["source"], offset=error.start) from error
    path = resolve(model, given["quant"], console)
    with load_model(path, {**given, "context": given["ctx"]}, console) as loaded:
        console.detail(f"{loaded!r}")
        printer = _Printer(console, draw=not as_json)
        result = perplexity(loaded, text, n_ctx=given["ctx"], chunks=given["chunks"], progress=printer.update)
        printer.close()
        document = _document(loaded, result, data)
    if as_json:
        console.json(document)
        return
    console.line(f"Final estimate: PPL = {result.value:.4f} +/- {result.stderr:.5f}")
    console.line(
        f"method {result.method}, n_ctx {result.n_ctx}, {result.chunks} chunks, "
        f"{result.scored} of {result.tokens} tokens scored, {result.bits_per_byte:.4f} bits per byte"
    )
    console.line(f"text sha256 {document['text']['sha256']}")
    console.line(f"tokenizer sha256 {document['tokenizer_sha256']}")
    console.line(f"{document['engine']['isa']} {document['engine']['mode']}, {document['engine']['threads']} threads")


class _Printer:
    """llama.cpp's running line: ``[1]12.3456,[2]13.4567,`` on standard output."""

    def __init__(self, console: Console, *, draw: bool) -> None:
        self._console = console
        self._draw = draw
        self._progress = console.progress("scoring", unit=" chunks")

    def update(self, result: Perplexity, total: int) -> None:
        if self._draw:
            self._console.write(f"[{result.chunks}]{result.value:.4f},")
        else:
            self._progress.update(result.chunks, total)

    def close(self) -> None:
        if self._draw:
            self._console.line()
        else:
            self._progress.__exit__(None, None, None)


def _document(model: Model, result: Perplexity, data: bytes) -> dict[str, Any]:
    from cortiq.cli.models import engine_facts

    tokenizer = model.file.tokenizer_json or b""
    return {
        "model": str(model.path),
        **asdict(result),
        "bits_per_byte": result.bits_per_byte,
        "text": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
        "tokenizer_sha256": hashlib.sha256(tokenizer).hexdigest(),
        "engine": engine_facts(model),
    }


def _read(source: str, console: Console) -> bytes:
    if source != "-":
        return Path(source).expanduser().read_bytes()
    from cortiq.cli.prompt import read_bytes

    return read_bytes(console)


def _head(data: bytes, limit: int) -> bytes:
    """At most ``limit`` bytes of UTF-8, whole characters."""
    end = min(limit, len(data))
    while 0 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
