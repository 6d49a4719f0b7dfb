"""Writing a CMF file (SPEC 1-6, 8.1): sizes first, then payloads in one pass, each hashed while it is in the cache.

Other threads take the strong digests of what has been written. The memory it takes is that of one chunk of one tensor.
Equal input gives equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cortiq.container.blob_layout import BlobLayout, SectionSizes, plan_layout, record_layout
from cortiq.container.digest import (
    NBYTES,
    digest_tensor_name,
    digest_tensor_nbytes,
    is_digest_tensor,
    with_digests,
    with_directory_digest,
    without_digests,
)
from cortiq.container.directory import Directory, directory_nbytes, encode_directory, parse_directory
from cortiq.container.disk import Output
from cortiq.container.envelope import Envelope, check_ranges
from cortiq.container.features import features_of
from cortiq.container.file import File
from cortiq.container.hash64 import Buffer
from cortiq.container.hashing import StreamHash, hash64
from cortiq.container.header import HASHED_SECTIONS, QUANT_TYPES, Header, parse_header
from cortiq.container.mask_meta import parse_mask_meta
from cortiq.container.names import check_name
from cortiq.container.output import AtomicFile
from cortiq.container.shard_names import split_shard_name
from cortiq.container.strict_json import dump_json
from cortiq.container.tensor import TensorEntry
from cortiq.container.tensor_checks import overlapping
from cortiq.errors import CortiqError, HashMismatch, Parse, UsageError
from cortiq.layouts import check_tensor

if TYPE_CHECKING:
    from cortiq.container.partial import PartialFile

_U8 = 6


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to be written.

    ``dtype``   id of SPEC 3.1
    ``nbytes``  size of the payload, known beforehand
    ``chunks``  the payload in order, iterated once, when its turn comes: any contiguous buffers
    ``hash``    when given, what hash64 of the payload must be
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    chunks: Iterable[Buffer]
    hash: int | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is written. With ``digests`` the last tensor holds them and gets its payload when the others are written."""

    header: Header
    tensors: Sequence[TensorSpec]
    sections: Mapping[str, memoryview]
    layout: BlobLayout
    digests: bool


def write_file(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    tensors: Iterable[TensorSpec],
    *,
    layout: BlobLayout | None = None,
    digests: bool = True,
    **sections: Buffer | None,
) -> Envelope:
    """Write ``path`` atomically and return its envelope.

    ``header`` needs ``arch`` and ``quant_type``; format, version and section hashes are filled in. ``sections`` are
    ``masks``, ``vocab`` and ``index``. ``digests`` adds SHA-256 of everything (``cortiq.container.digest``); those
    that header and tensors bring from another file are dropped. A ``Header`` of an open file is written byte for byte
    instead, and with it the tensors as they are. ``layout`` is that of ``record_layout``, by default a fresh one.

    Raises what ``open`` would raise for such a file, UsageError (``alias``, ``payload``, ``shard_name``, ``layout``),
    HashMismatch for a payload or section that is not the one announced, OSError, and what a producer of chunks raises.
    In every case the target is left as it was.
    """
    with naming(path):
        plan = plan_file(path, header, list(tensors), sections, layout=layout, digests=digests)
        with AtomicFile(path) as output:
            return write_plan(plan, output)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of ours that name no file name ``path``."""
    try:
        yield
    except CortiqError as error:
        error.path = error.path or os.fspath(path)
        raise


def write_plan(plan: FilePlan, output: AtomicFile, partial: PartialFile | None = None) -> Envelope:
    """Write and commit ``plan``. ``partial`` is ``output`` when an earlier attempt may have written some of it."""
    directory = write_body(plan, output, partial)
    envelope = write_head(plan, stated_header(plan, directory), directory, output)
    output.commit()
    return envelope


def copy(file: File, path: str | os.PathLike[str]) -> Envelope:
    """Write an open file again: the same bytes, each checked against its hash on the way.

    Raises as ``write_file``; UsageError.alias for a file whose tensors share bytes.
    """
    specs = [
        TensorSpec(name, entry.dtype, entry.shape, entry.nbytes, (file[name].raw,), entry.hash)
        for name, entry in file.tensors.items()
    ]
    sections = {name: file.section(name) for name in HASHED_SECTIONS}
    return write_file(path, file.header, specs, layout=record_layout(file), digests=False, **sections)


def plan_file(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    tensors: list[TensorSpec],
    given: Mapping[str, Buffer | None],
    *,
    layout: BlobLayout | None = None,
    digests: bool = True,
) -> FilePlan:
    """Everything but the payloads, checked. ``given`` are the sections; the rest is as in ``write_file``."""
    if unknown := given.keys() - set(HASHED_SECTIONS):
        raise TypeError(f"there is no section {', '.join(sorted(unknown))}")
    sections = {name: flat(data) for name, data in given.items() if data is not None and flat(data)}
    if isinstance(header, Header):
        made, digests = _check_hashes(header, sections), False
    else:
        tensors = [spec for spec in tensors if not is_digest_tensor(spec.name)]
        made = _make_header(header, sections)
        if digests:
            name, nbytes = digest_tensor_name(made.shard), digest_tensor_nbytes(len(tensors))
            made = with_digests(made, sections)
            tensors.append(TensorSpec(name, _U8, (len(tensors), NBYTES), nbytes, ()))
    check_tensors(tensors)
    if "masks" in sections:
        parse_mask_meta(bytes(sections["masks"]), len(sections["masks"]), made.arch, 0)
    if split_shard_name(Path(path).name) is not None and made.shard is None:
        raise UsageError(
            "the name says it is a file of a shard set, but it is not", code="shard_name", found=Path(path).name
        )
    layout = layout or _fresh_layout(made, tensors, sections)
    _check_layout(layout, made, tensors, sections)
    return FilePlan(made, tensors, sections, layout, digests)


def _fresh_layout(header: Header, tensors: Sequence[TensorSpec], sections: Mapping[str, memoryview]) -> BlobLayout:
    features = features_of(
        {spec.dtype for spec in tensors},
        masks="masks" in sections,
        loops=header.arch.num_loops,
        skill_file=header.is_skill_file,
    )
    sizes = SectionSizes(
        len(header.raw),
        directory_nbytes(spec.name for spec in tensors),
        **{name: len(data) for name, data in sections.items()},
    )
    return plan_layout(sizes, [spec.nbytes for spec in tensors], features)


def check_tensors(tensors: Sequence[TensorSpec]) -> None:
    """Raise what ``open`` would raise for the names, dtypes, shapes and sizes."""
    seen = set()
    for spec in tensors:
        check_name(spec.name)
        if spec.name in seen:
            raise Parse("two tensors have the same name", code="name_dup", tensor=spec.name)
        seen.add(spec.name)
        try:
            check_tensor(spec.dtype, spec.shape, spec.nbytes)
        except CortiqError as error:
            error.tensor = spec.name
            raise


def _make_header(header: Mapping[str, Any], sections: Mapping[str, memoryview]) -> Header:
    fields = {"format": "cmf", "version": 2, **without_digests(header)}
    if fields.get("quant_type") not in QUANT_TYPES:
        raise Parse(
            "header field quant_type is not valid",
            code="header_field",
            section="header",
            expected=f"one of {', '.join(QUANT_TYPES)}",
            found=fields.get("quant_type"),
        )
    fields.pop("section_hashes", None)
    if sections:
        fields["section_hashes"] = {name: f"{hash64(data):016x}" for name, data in sections.items()}
    return parse_header(dump_json(fields))


def _check_hashes(header: Header, sections: Mapping[str, memoryview]) -> Header:
    for name, data in sections.items():
        stored = header.section_hashes.get(name, 0)
        if stored and stored != (found := hash64(data)):
            raise HashMismatch(
                f"the section {name} is not the one the header announces",
                code=name,
                section=name,
                expected=f"{stored:016x}",
                found=f"{found:016x}",
            )
    return header


def _check_layout(
    layout: BlobLayout, header: Header, tensors: Sequence[TensorSpec], sections: Mapping[str, memoryview]
) -> None:
    """A recorded layout fits nothing but the content it was recorded of."""
    envelope = layout.envelope
    names = (spec.name for spec in tensors)
    wanted = {
        "header": len(header.raw),
        "directory": directory_nbytes(names) if layout.directory is None else len(layout.directory),
        **{name: len(sections.get(name, b"")) for name in HASHED_SECTIONS},
    }
    for name, nbytes in wanted.items():
        if envelope.section(name).nbytes != nbytes:
            found = envelope.section(name).nbytes
            raise UsageError(f"the layout is for another {name}", code="layout", expected=nbytes, found=found)
    if len(layout.offsets) != len(tensors):
        raise UsageError(
            "the layout is for other tensors", code="layout", expected=len(tensors), found=len(layout.offsets)
        )
    check_ranges(envelope, layout.size)


def write_body(plan: FilePlan, output: AtomicFile, partial: PartialFile | None = None) -> bytes:
    """Write everything but header and envelope; the bytes of the directory. ``partial`` is as in ``write_plan``."""
    layout = plan.layout
    output.allocate(layout.size)
    planned = [
        TensorEntry(spec.name, spec.dtype, tuple(spec.shape), off, spec.nbytes, spec.hash or 0)
        for spec, off in zip(plan.tensors, layout.offsets, strict=True)
    ]
    _checked_directory(encode_directory(planned), layout.envelope)
    for offset, data in layout.residue:
        output.write_at(offset, data)
    entries = _write_tensors(plan, planned, output, partial)
    directory = encode_directory(entries)
    if layout.directory is not None:
        if list(_checked_directory(layout.directory, layout.envelope).values()) != entries:
            raise UsageError("the layout is for other tensors", code="layout")
        directory = layout.directory
    output.write_at(layout.envelope.directory.offset, memoryview(directory))
    for name, data in plan.sections.items():
        output.write_at(layout.envelope.section(name).offset, data)
    return directory


def stated_header(plan: FilePlan, directory: bytes) -> Header:
    """The header of a file with this directory. Its size is the one planned."""
    return with_directory_digest(plan.header, directory) if plan.digests else plan.header


def write_head(plan: FilePlan, header: Header, directory: bytes, output: AtomicFile) -> Envelope:
    """Write the header and, last of all, the envelope."""
    layout = plan.layout
    output.write_at(layout.envelope.header.offset, memoryview(header.raw))
    envelope = replace(
        layout.envelope,
        header_hash=hash64(header.raw) if layout.envelope.header_hash else 0,
        directory_hash=hash64(directory) if layout.envelope.directory_hash else 0,
    )
    output.write_at(0, memoryview(envelope.pack()))
    return envelope


def _write_tensors(
    plan: FilePlan, planned: Sequence[TensorEntry], output: AtomicFile, partial: PartialFile | None
) -> list[TensorEntry]:
    """Write every payload in order, but for those that ``partial`` has kept; the entries with their hashes."""
    from cortiq.container.digest_pool import DigestPool  # readers need no threads

    base, kept = plan.layout.envelope.data.offset, () if partial is None else partial.kept
    entries = [replace(entry, hash=payload.hash) for entry, payload in zip(planned, kept, strict=False)]
    own = plan.tensors[-1] if plan.digests else None
    with ExitStack() as stack:
        pool = None
        if plan.digests or partial is not None:
            pool = stack.enter_context(DigestPool(output.fd, [payload.digest for payload in kept]))
        if pool is not None and partial is not None:
            stack.enter_context(partial.following(pool))
        for spec, entry in zip(plan.tensors[len(kept) :], planned[len(kept) :], strict=True):
            filled = replace(spec, chunks=pool.digests()) if pool is not None and spec is own else spec
            entry = replace(entry, hash=write_tensor(filled, base + entry.off, output))
            entries.append(entry)
            if pool is not None and spec is not own:
                pool.add(base + entry.off, entry.nbytes)
                if partial is not None:
                    partial.finished(entry.hash, entry.nbytes)
    return entries


def _checked_directory(raw: bytes, envelope: Envelope) -> Directory:
    """``raw`` as its reader will see it. Raises what ``open`` raises, and UsageError.alias."""
    directory = parse_directory(raw, envelope)
    for before, after in overlapping(directory.table):
        names = directory.table.names
        raise UsageError(
            f"tensors {names[before]!r} and {names[after]!r} would share bytes", code="alias", tensor=names[after]
        )
    return directory


def write_tensor(spec: TensorSpec, offset: int, output: Output) -> int:
    """Write a payload and return its hash. Raises UsageError.payload and HashMismatch.tensor."""
    state, written = StreamHash(), 0
    for chunk in spec.chunks:
        data = flat(chunk)
        if written + len(data) > spec.nbytes:
            raise _wrong_payload(spec, f"over {spec.nbytes}")
        state.update(data)
        output.write_at(offset + written, data)
        written += len(data)
    if written != spec.nbytes:
        raise _wrong_payload(spec, written)
    digest = state.digest()
    if spec.hash is not None and digest != spec.hash:
        raise HashMismatch(
            "the payload is not the one announced",
            code="tensor",
            tensor=spec.name,
            expected=f"{spec.hash:016x}",
            found=f"{digest:016x}",
        )
    return digest


def _wrong_payload(spec: TensorSpec, found: object) -> UsageError:
    return UsageError(
        "the payload has another size than planned", code="payload", tensor=spec.name, expected=spec.nbytes, found=found
    )


def flat(data: Buffer) -> memoryview:
    """A flat view of the bytes of a contiguous buffer or array."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    return np.frombuffer(data, dtype=np.uint8).data if len(data) else memoryview(b"")
