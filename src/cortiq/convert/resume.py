"""Writing a model in one go, or so that it can go on after an interruption (``ConvertOptions.resume``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cortiq import __version__
from cortiq.container.directory import encode_directory
from cortiq.container.envelope import Range
from cortiq.container.hash64 import Buffer
from cortiq.container.output import AtomicFile
from cortiq.container.partial import PartialFile, remove_partial
from cortiq.container.strict_json import dump_json
from cortiq.container.tensor import TensorEntry
from cortiq.container.writer import FilePlan, TensorSpec, naming, plan_file, write_plan
from cortiq.convert.options import ConvertOptions
from cortiq.convert.source import Source

_LONGEST = 100


def write_model(
    path: Path,
    header: Mapping[str, Any],
    tensors: list[TensorSpec],
    source: Source,
    options: ConvertOptions,
    **sections: Buffer | None,
) -> list[str]:
    """Write the file ``path`` as ``write_file`` does; notes for the receipt.

    With ``options.resume`` it goes on with an interrupted attempt: chunks of tensors that are there already are not
    asked for. Without, what such an attempt left is removed once the file is complete. Raises as ``write_file`` and
    ``PartialFile``.
    """
    with naming(path):
        plan = plan_file(path, header, tensors, sections, digests=options.digests)
        if not options.resume:
            with AtomicFile(path) as output:
                write_plan(plan, output)
            remove_partial(path)
            return []
        with PartialFile(path) as partial:
            partial.take_over(facts_of(source, options, plan), _payloads(plan), plan.layout.size)
            write_plan(plan, partial, partial)
    done = len(partial.kept)
    return [f"{done} of {len(tensors)} tensors were there from an interrupted attempt"] if done else []


def facts_of(source: Source, options: ConvertOptions, plan: FilePlan) -> dict[str, str]:
    """Everything that decides about the bytes of a file, by what people call it. Raises NativeMissing."""
    from cortiq.native import core

    facts = {"version of cortiq": __version__, "compiled core": _sha256(Path(core.__file__).read_bytes())}
    facts |= {f"source file {name}": stamp for name, stamp in source.stamps.items()}
    facts |= {f"option {name}": _short(dump_json(value)) for name, value in options.record().items()}
    facts |= {f"section {name}": _sha256(data) for name, data in plan.sections.items()}
    directory = [
        TensorEntry(spec.name, spec.dtype, tuple(spec.shape), offset, spec.nbytes, 0)
        for spec, offset in zip(plan.tensors, plan.layout.offsets, strict=True)
    ]
    return facts | {"header": _sha256(plan.header.raw), "list of tensors": _sha256(encode_directory(directory))}


def _payloads(plan: FilePlan) -> list[Range]:
    """Where in the file the payloads are that are written in order, all but the digests."""
    base = plan.layout.envelope.data.offset
    tensors = plan.tensors[:-1] if plan.digests else plan.tensors
    return [Range(base + off, spec.nbytes) for spec, off in zip(tensors, plan.layout.offsets, strict=False)]


def _short(text: bytes) -> str:
    return text.decode() if len(text) <= _LONGEST else f"SHA-256 {_sha256(text)}"


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
