"""``cortiq info``: what a file says about itself; its weights are not read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes, human_count
from cortiq.cli.params import Command, alone_option, json_option, option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File

EPILOG = """
cortiq info model.cmf
cortiq info model.cmf --tensors | sort -k5 -n | tail
cortiq info model.cmf --json | jq .arch
cortiq info hf://org/repository/model.cmf@main
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--tensors", is_flag=True, help="List every tensor.")
@alone_option
@json_option
@pass_console
def info(console: Console, model: str, tensors: bool, alone: bool, as_json: bool) -> None:
    """Show what is in the .cmf file MODEL, at a URL, or behind a known name that was pulled.

    Any file of a set stands for the set. No weight is read; `cortiq verify` checks the rest.
    """
    from cortiq.cli.models import readable_file
    from cortiq.container import open, open_single

    with (open_single if alone else open)(readable_file(model)) as file:
        if as_json:
            document = describe(file)
            if tensors:
                document["tensors"]["list"] = [_record(file, name) for name in file]
            console.json(document)
        elif tensors:
            _print_tensors(console, file)
        else:
            for label, value in _lines(file, describe(file)):
                console.line(f"{console.paint(label.ljust(13), 'bold')}{printable(value)}")


def describe(file: File) -> dict[str, Any]:
    """The file as a JSON document."""
    from cortiq.container.features import Feature

    header = file.header
    chat = header.chat
    present = file.section_hashes
    fields = header.to_dict()
    return {
        "path": str(file.path),
        "size": file.size,
        "version": 2,
        "features": [f.name for f in Feature if f & file.envelope.features],
        "arch": fields["arch"],
        "quant_type": header.quant_type,
        "tensors": _histogram(file),
        "tokenizer": None
        if "vocab" not in present
        else {
            "bytes": file.envelope.vocab.nbytes,
            "chat_template": bool(chat and chat.chat_template),
            "eos_token_ids": list(chat.eos_token_ids) if chat else [],
            "bos_token_id": chat.bos_token_id if chat else None,
        },
        "generation_config": file.generation,
        **_sparsity(file),
        "provenance": fields.get("provenance"),
        "shard": None if header.shard is None else {n: getattr(header.shard, n) for n in ("no", "count", "set")},
        "files": [{"path": str(part.path), "size": part.size, "tensors": len(part)} for part in file.parts or (file,)],
        "hashes": {name: f"{value:016x}" if value else None for name, value in present.items()},
        "sections": [
            {"name": name, "offset": part.offset, "bytes": part.nbytes} for name, part in _sections(file) if part.nbytes
        ],
    }


def _sparsity(file: File) -> dict[str, Any]:
    """Masks, sparse index and skills in short; their own commands say more."""
    masks, index, skills = file.mask_meta, file.sparse_index, file.skills
    return {
        "masks": None
        if masks is None
        else {"default_task": masks.default_task, "names": [place.info.name for place in masks.masks]},
        "sparse_index": None if index is None else {"entries": len(index)},
        "skills": [{"id": name, "tensors": len(skills.entries(name))} for name in skills.ids],
        "standalone_skill": file.header.is_skill_file,
    }


def _sections(file: File) -> Iterator[tuple[str, Any]]:
    for name in ("header", "directory", "data", "masks", "vocab", "index"):
        yield name, file.envelope.section(name)


def _histogram(file: File) -> dict[str, Any]:
    """Tensors, values and bytes in all and by dtype, largest first; u8 tensors hold bytes, not parameters."""
    from cortiq.layouts import DTYPE_NAMES

    kinds: dict[str, dict[str, Any]] = {}
    for entry in file.tensors.values():
        name = DTYPE_NAMES[entry.dtype]
        kind = kinds.setdefault(name, {"dtype": name, "tensors": 0, "values": 0, "bytes": 0})
        kind["tensors"] += 1
        kind["values"] += math.prod(entry.shape)
        kind["bytes"] += entry.nbytes
    by_size = sorted(kinds.values(), key=lambda kind: -kind["bytes"])
    return {
        "count": len(file.tensors),
        "parameters": sum(kind["values"] for kind in by_size if kind["dtype"] != "u8"),
        "bytes": sum(kind["bytes"] for kind in by_size),
        "dtypes": by_size,
        "decode_to_scratch": _slow([kind["dtype"] for kind in by_size]),
    }


def _slow(dtypes: list[str]) -> list[str] | None:
    """Which dtypes the best kernels here decode before they multiply; None when there is no native core to ask."""
    from cortiq.errors import NativeMissing

    try:
        from cortiq.native import core
        from cortiq.ops.linear import slow_dtypes

        slow = slow_dtypes(core.best_isa())
    except NativeMissing:
        return None
    return [name for name in dtypes if name in slow]


def _record(file: File, name: str) -> dict[str, Any]:
    from cortiq.layouts import DTYPE_NAMES

    entry, home = file.tensors[name], file.home(name)
    return {
        "name": entry.name,
        "dtype": DTYPE_NAMES[entry.dtype],
        "shape": list(entry.shape),
        "file": home.name,
        "offset": home.envelope.data.offset + entry.off,
        "bytes": entry.nbytes,
        "hash": f"{entry.hash:016x}",
    }


def _print_tensors(console: Console, file: File) -> None:
    rows = []
    for record in (_record(file, name) for name in file):
        shape = "x".join(map(str, record["shape"])) or "scalar"
        place = (str(record["offset"]), str(record["bytes"]), record["hash"])
        rows.append([printable(record["name"]), record["dtype"], shape, *place])
    console.table(["tensor", "dtype", "shape", "offset", "bytes", "hash64"], rows, right=(3, 4))


def _lines(file: File, document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    arch, tensors, tokenizer = file.arch, document["tensors"], document["tokenizer"]
    yield "file", f"{document['path']}, {human_bytes(document['size'])}, CMF v2 ({', '.join(document['features'])})"
    yield "model", f"{arch.arch_name}, {human_count(tensors['parameters'])} parameters, {arch.num_layers} layers"
    heads = f"{arch.num_attention_heads} heads of {arch.head_dim}, {arch.num_kv_heads} for keys and values"
    sizes = f"vocabulary {arch.vocab_size}, context {arch.max_position_embeddings}"
    yield "shape", f"hidden {arch.hidden_size}, ffn {arch.intermediate_size}, {heads}, {sizes}"
    yield "tensors", f"{tensors['count']}, {human_bytes(tensors['bytes'])}"
    for kind in tensors["dtypes"]:
        share = kind["bytes"] / max(tensors["bytes"], 1)
        yield "", f"{kind['dtype']:9} {kind['tensors']:5} tensors  {human_bytes(kind['bytes']):>10}  {share:6.1%}"
    if slow := tensors["decode_to_scratch"]:
        yield "", f"{', '.join(slow)}: no fast kernels, runs through decode-to-scratch"
    if tokenizer is None:
        yield "tokenizer", "none: the file cannot answer text"
    else:
        template = "its own chat template" if tokenizer["chat_template"] else "no chat template: ChatML is used"
        ends = ", ".join(map(str, tokenizer["eos_token_ids"])) or "none stated"
        yield "tokenizer", f"{human_bytes(tokenizer['bytes'])}, {template}, stop ids {ends}"
    yield from _sparsity_lines(document)
    if file.parts:
        yield "set", f"{len(file.parts)} files, {human_bytes(file.size)} in all"
        for part in file.parts:
            yield "", f"{part.name}  {len(part):5} tensors  {human_bytes(part.size):>10}"
    elif document["shard"]:
        yield "shard", f"{document['shard']['no']} of {document['shard']['count']}, without the others"
    for label in ("generation_config", "provenance"):
        if document[label]:
            yield label.partition("_")[0], _plain(document[label])
    known = [f"{name} {value or 'unhashed'}" for name, value in document["hashes"].items()]
    yield "hash64", f"{', '.join(known)}; one for every tensor"


def _sparsity_lines(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    masks, skills, index = document["masks"], document["skills"], document["sparse_index"]
    if masks is not None:
        yield "masks", f"{', '.join(masks['names']) or 'none'}; default task {masks['default_task'] or 'none'}"
    if index is not None:
        yield "sparse index", f"{index['entries']} entries, never used"
    if skills:
        yield "skills", ", ".join(f"{found['id']} ({found['tensors']} tensors)" for found in skills)
    if document["standalone_skill"]:
        yield "standalone", "a skill without its base; not a model"


def _plain(value: Any) -> str:
    """JSON as words: ``quant q8_row, encoder best``."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(_plain(item) for item in value)
    return str(value)
