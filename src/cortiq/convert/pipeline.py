"""From a source to a CMF file: plan, then stream (SPEC 1-6).

All sizes are known before the first byte is written. Matrices go through in blocks of rows: read from the map, encoded
by a few threads, written in order. A handful of blocks is in memory at a time, whatever the size of the model, and the
bytes depend on the source and the options only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cortiq.container import TensorSpec
from cortiq.container.shard_writer import check_set_output, write_shards
from cortiq.convert.encode import EncodePool
from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned, plan_tensors
from cortiq.convert.receipt import Receipt, make_receipt
from cortiq.convert.resume import write_model
from cortiq.convert.source import Source
from cortiq.convert.sources import open_source
from cortiq.errors import SourceError, UsageError
from cortiq.layouts import layout
from cortiq.quantize import QUANT_TYPES

_TOOL = "cortiq convert"


def convert(
    source: Path, output: Path, options: ConvertOptions | None = None, *, progress: Progress | None = None
) -> Receipt:
    """Convert the checkpoint at ``source`` (Hugging Face folder or GGUF file) into the CMF file ``output``.

    With ``shard_bytes`` it becomes the set of files that ``edit.shard`` would make of that file. The output appears
    complete or not at all; ``resume`` goes on with an interrupted attempt, to the same bytes.

    Raises UsageError (``exists`` unless ``force``, ``resume`` for an attempt that was begun with something else), Busy,
    SourceError, UnsupportedArch, MissingTensor, ShapeMismatch, NonFinite naming the tensor and its first bad weight,
    NativeMissing, and what ``write_file`` or ``write_shards`` raises.
    """
    options = options or ConvertOptions()
    _check_output(source, output, options)
    with open_source(source) as opened:
        if opened.tokenizer_json is None and not options.allow_no_tokenizer:
            raise SourceError("there is no tokenizer.json", code="tokenizer", path=str(source))
        planned = plan_tensors(opened, options)
        header, notes = make_header(opened, options)
        with EncodePool(planned, options, progress) as pool:
            specs = [_spec(entry, pool) for entry in planned]
            if options.shard_bytes is None:
                paths: Sequence[Path] = (output,)
                notes += write_model(output, header, specs, opened, options, vocab=opened.tokenizer_json)
            else:
                paths = write_shards(
                    output, header, specs, options.shard_bytes, vocab=opened.tokenizer_json, digests=options.digests
                ).paths
        return make_receipt(opened, planned, notes, paths)


def make_header(source: Source, options: ConvertOptions) -> tuple[dict[str, Any], list[str]]:
    """The header without its section hashes, and notes for the receipt."""
    model = options.source_model or source.name
    provenance: dict[str, object] = {"tool": _TOOL, "source_model": model, "source_format": source.kind}
    if options.revision is not None:
        provenance["revision"] = options.revision
    provenance["options"] = options.record()
    chat, notes = _bounded_ids(source)
    header: dict[str, Any] = {
        "format": "cmf",
        "version": 2,
        "arch": dict(source.arch),
        "quant_type": QUANT_TYPES[options.quant],
        "provenance": provenance,
        "tokenizer_config": chat,
    }
    if source.generation is not None:
        header["generation_config"] = dict(source.generation)
    return header, notes


def _bounded_ids(source: Source) -> tuple[dict[str, object], list[str]]:
    """``tokenizer_config`` without token ids the vocabulary does not have: a file that names one is not valid."""
    vocab = source.arch["vocab_size"]
    assert isinstance(vocab, int)
    chat, notes = dict(source.tokenizer_config), []
    ends = chat.get("eos_token_ids")
    if isinstance(ends, list):
        chat["eos_token_ids"] = [token for token in ends if token < vocab]
        notes += [f"stop id {token} is outside the vocabulary: left out" for token in ends if token >= vocab]
    for key in ("bos_token_id", "pad_token_id"):
        token = chat.get(key)
        if isinstance(token, int) and token >= vocab:
            del chat[key]
            notes.append(f"{key} {token} is outside the vocabulary: left out")
    return chat, notes


def _spec(entry: Planned, pool: EncodePool) -> TensorSpec:
    kind = layout(entry.dtype)
    return TensorSpec(entry.tensor.name, kind.id, entry.tensor.shape, entry.nbytes, pool.chunks(entry))


def _check_output(source: Path, output: Path, options: ConvertOptions) -> None:
    if options.shard_bytes is not None:
        check_set_output(output, [source], force=options.force)
        return
    if output.exists() and not options.force:
        raise UsageError("the output exists already", code="exists", path=str(output))
    if output.exists() and source.exists() and output.samefile(source):
        raise UsageError("source and output are the same", code="exists", path=str(output))
