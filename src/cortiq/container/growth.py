"""Growth in place (SPEC 9): tensors, header and masks are appended, then 128 bytes switch to them.

No byte that was ever live is written again, so a reader that opened the file earlier keeps its version, and a process
or a machine that stops at any moment leaves the old version or the new one:

    new payloads, masks, header, directory behind the end | recovery record | barrier | envelope | barrier

What does not change is not written: a change of the header alone keeps the directory, and with it the hash that
standalone skills are bound to (SPEC 9.1).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cortiq.container.blob_layout import align
from cortiq.container.digest import (
    ALG,
    FIELD,
    NBYTES,
    TENSOR,
    covered,
    digest_tensor_nbytes,
    read_digests,
    with_directory_digest,
)
from cortiq.container.directory import directory_nbytes, encode_directory, parse_directory
from cortiq.container.envelope import Envelope, Range, check_ranges
from cortiq.container.features import features_of
from cortiq.container.file import File
from cortiq.container.hash64 import Buffer
from cortiq.container.hashing import hash64
from cortiq.container.header import Header, parse_header
from cortiq.container.history import newest_record
from cortiq.container.locking import InPlace, LockedFile
from cortiq.container.records_table import ALIGNMENT
from cortiq.container.recovery import Tail, commit, make_tail
from cortiq.container.strict_json import dump_json
from cortiq.container.tensor import TensorEntry
from cortiq.container.writer import TensorSpec, check_tensors, flat, write_tensor
from cortiq.errors import CortiqError, MissingTensor, UsageError

HeaderChange = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
_U8 = 6
_WITH_MASKS = ("masks", "index")  # new masks make the index wrong: both are replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of a file.

    ``add``      tensors that become the last ones of the directory; a name that is there must be in ``remove``
    ``remove``   names that leave the directory; their bytes stay where they are
    ``header``   the fields instead of those there are, or a function that is given a copy of them while nobody else
                 can write. Section hashes and digests are filled in
    ``masks``    a masks section (SPEC 5); no bytes remove the one there is, None keeps it. With new masks the sparse
                 index goes: it said what the old ones were, and writers should not make one any more (SPEC 7)
    ``what``     what `cortiq log` shows
    """

    add: Sequence[TensorSpec] = ()
    remove: frozenset[str] = frozenset()
    header: HeaderChange | None = None
    masks: memoryview | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that is known before a payload is read.

    ``header``   the new one, None when it stays
    ``entries``  all records of the new directory, those of new tensors without their hash; None when it stays
    ``digests``  of the tensors that stay, by name; None for a file without digests
    """

    file: File
    envelope: Envelope
    header: Header | None
    entries: list[TensorEntry] | None
    specs: Sequence[TensorSpec]
    masks: memoryview | None
    digests: dict[str, bytes] | None
    tail: Tail
    start: int
    end: int


def grow(
    path: str | os.PathLike[str],
    *,
    add: Iterable[TensorSpec] = (),
    remove: Iterable[str] = (),
    header: HeaderChange | None = None,
    masks: Buffer | None = None,
    allowed: InPlace | None = None,
    what: str = "",
) -> Envelope:
    """Change the CMF file ``path`` as a ``Change`` of these parts says. Returns and raises as ``grow_by``."""
    change = Change(
        add=tuple(add),
        remove=frozenset(remove),
        header=header,
        masks=None if masks is None else flat(masks),
        what=what,
    )
    return grow_by(path, lambda file: change, allowed=allowed)


def grow_by(
    path: str | os.PathLike[str], decide: Callable[[File], Change], *, allowed: InPlace | None = None
) -> Envelope:
    """Change the CMF file ``path`` by appending to it, all or nothing, and return its envelope.

    ``decide`` is given the file while nobody else can write to it. A file that carries digests gets them for what is
    new. Nothing to do writes nothing.

    Raises what ``decide`` raises, what ``open`` raises for the file and would raise for the result, what
    ``LockedFile`` raises, MissingTensor.name, UsageError (``skill_file``, ``shards``, ``payload``), HashMismatch,
    OSError, and what a producer of chunks raises. In every case the file is the one it was, perhaps with dead bytes at
    its end.
    """
    try:
        with LockedFile(path, allowed or InPlace()) as locked, locked.read() as file:
            change = decide(file)
            check_tensors(change.add)
            plan = _plan(file, change, locked.size, change.what or _describe(change))
            return file.envelope if plan is None else _write(plan, locked)
    except CortiqError as error:
        error.path = error.path or os.fspath(path)
        raise


def tail_start(file: File, size: int) -> int:
    """Where a growth begins: behind the end, dead or not, for somebody may still look at the bytes before it."""
    return file.envelope.data.offset + align(size - file.envelope.data.offset, ALIGNMENT)


def _describe(change: Change) -> str:
    words = [f"add {len(change.add)} tensors"] if change.add else []
    words += [f"remove {len(change.remove)} tensors"] if change.remove else []
    words += ["header"] if change.header is not None else []
    words += ["masks"] if change.masks is not None else []
    return ", ".join(words)


def _plan(file: File, change: Change, size: int, what: str) -> _Plan | None:
    """None when there is nothing to do. Raises what ``open`` would raise for the result."""
    _check_grows(file.header)
    specs, digests = list(change.add), _digests_kept(file, change)
    kept = _kept(file, change, digests is not None)
    changes = bool(change.add or change.remove)
    if changes and digests is not None:
        count = len(covered([*(entry.name for entry in kept), *(spec.name for spec in specs)]))
        specs.append(TensorSpec(TENSOR, _U8, (count, NBYTES), digest_tensor_nbytes(count), ()))
    start = tail_start(file, size)
    new, end = _place(specs, start, file.envelope.data.offset)
    entries = [*kept, *new] if changes else None
    header = _make_header(file, change, digests is not None, changes)
    if entries is None and header is None and change.masks is None:
        return None
    newest = newest_record(file)
    tail = make_tail(file.envelope, what, None if newest is None else newest.offset)
    envelope, end = _make_envelope(file, entries, header, change.masks, end)
    plan = _Plan(file, envelope, header, entries, specs, change.masks, digests, tail, start, end)
    _check(plan)
    return plan


def _check_grows(header: Header) -> None:
    if header.is_skill_file:
        raise UsageError("a standalone skill file does not grow", code="skill_file")
    if header.shard is not None and header.shard.count > 1:
        found = f"shard {header.shard.no} of {header.shard.count}"
        raise UsageError("a file of a shard set does not grow", code="shards", found=found)


def _digests_kept(file: File, change: Change) -> dict[str, bytes] | None:
    """Digests of the tensors that stay. Removing the tensor that holds them removes them all."""
    stated = None if TENSOR in change.remove else read_digests(file)
    if stated is None:
        return None
    return {name: digest for name, digest in stated.tensors.items() if name not in change.remove}


def _kept(file: File, change: Change, digests: bool) -> list[TensorEntry]:
    for name in change.remove:
        if name not in file.tensors:
            raise MissingTensor("no such tensor to remove", code="name", tensor=name)
    gone = change.remove | {TENSOR} if digests else change.remove
    return [entry for name, entry in file.tensors.items() if name not in gone]


def _place(specs: Sequence[TensorSpec], start: int, base: int) -> tuple[list[TensorEntry], int]:
    """Entries of new tensors from ``start`` on, aligned to 64 from the data section, and where they end."""
    entries, end = [], start
    for spec in specs:
        off = align(end - base, ALIGNMENT)
        entries.append(TensorEntry(spec.name, spec.dtype, tuple(spec.shape), off, spec.nbytes, spec.hash or 0))
        end = base + off + spec.nbytes
    return entries, end


def _make_header(file: File, change: Change, digests: bool, directory_changes: bool) -> Header | None:
    """The new header, None when it would be the one there is."""
    before, fields = file.header.to_dict(), file.header.to_dict()
    if callable(change.header):
        fields = dict(change.header(fields))
    elif change.header is not None:
        fields = {"format": "cmf", "version": 2, **change.header}
    _fill(fields, "section_hashes", _section_hashes(before, change.masks))
    _fill(fields, FIELD, _digests_field(before, change.masks, directory_changes) if digests else None)
    raw = dump_json(fields)
    if raw == dump_json(before):
        return None
    header = parse_header(raw)
    _check_grows(header)
    return header


def _fill(fields: dict[str, Any], name: str, value: dict[str, Any] | None) -> None:
    """Set a field, where it is or at the end, or leave it out."""
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _section_hashes(before: Mapping[str, Any], masks: memoryview | None) -> dict[str, Any] | None:
    hashes = before.get("section_hashes")
    if masks is None:
        return hashes
    others = {name: value for name, value in (hashes or {}).items() if name not in _WITH_MASKS}
    return ({"masks": f"{hash64(masks):016x}", **others} if masks else others) or None


def _digests_field(before: Mapping[str, Any], masks: memoryview | None, directory_changes: bool) -> dict[str, Any]:
    """The digest of a directory that changes is filled in when it is known."""
    sections = dict(before[FIELD].get("sections", {}))
    if masks is not None:
        sections = {name: value for name, value in sections.items() if name not in _WITH_MASKS}
        sections |= {"masks": hashlib.sha256(masks).hexdigest()} if masks else {}
    if directory_changes:
        sections["directory"] = "0" * (2 * NBYTES)
    return {"alg": ALG, "tensor": TENSOR, "sections": sections}


def _make_envelope(
    file: File, entries: list[TensorEntry] | None, header: Header | None, masks: memoryview | None, end: int
) -> tuple[Envelope, int]:
    """The new envelope, without the hash of a new directory, and where its sections end."""
    envelope = file.envelope
    if masks is not None:
        envelope = replace(envelope, masks=Range(end, len(masks)) if masks else Range(0, 0), index=Range(0, 0))
        end += len(masks)
    if header is not None:
        envelope = replace(envelope, header=Range(end, len(header.raw)))
        end = envelope.header.end
    if entries is not None:
        directory = Range(end, directory_nbytes(entry.name for entry in entries))
        data = Range(envelope.data.offset, max((entry.off + entry.nbytes for entry in entries), default=0))
        envelope = replace(envelope, directory=directory, data=data)
        end = directory.end
    shown = file.header if header is None else header
    features = features_of(
        {entry.dtype for entry in (file.tensors.values() if entries is None else entries)},
        masks=envelope.masks.nbytes > 0,
        loops=shown.arch.num_loops,
        skill_file=shown.is_skill_file,
    )
    hashed = replace(envelope, header_hash=hash64(shown.raw), directory_hash=hash64(file.tensors.raw))
    return replace(hashed, features=features), end


def _check(plan: _Plan) -> None:
    """The result as ``open`` will see it."""
    check_ranges(plan.envelope, plan.end + plan.tail.nbytes)
    raw = plan.file.tensors.raw if plan.entries is None else encode_directory(plan.entries)
    parse_directory(raw, plan.envelope)


def _write(plan: _Plan, locked: LockedFile) -> Envelope:
    envelope, header = plan.envelope, plan.header
    locked.allocate(plan.start, plan.end + plan.tail.nbytes - plan.start)
    if plan.entries is not None:
        directory = encode_directory(_write_tensors(plan, plan.entries, locked))
        envelope = replace(envelope, directory_hash=hash64(directory))
        locked.write_at(envelope.directory.offset, memoryview(directory))
        if header is not None and plan.digests is not None:
            header = with_directory_digest(header, directory)
    if plan.masks is not None:
        locked.write_at(envelope.masks.offset, plan.masks)
    if header is not None:
        envelope = replace(envelope, header_hash=hash64(header.raw))
        locked.write_at(envelope.header.offset, memoryview(header.raw))
    commit(locked, plan.tail, plan.end, envelope)
    return envelope


def _write_tensors(plan: _Plan, entries: list[TensorEntry], locked: LockedFile) -> list[TensorEntry]:
    """Write the new payloads; all records, now with their hashes."""
    first = len(entries) - len(plan.specs)
    base, digests = plan.envelope.data.offset, plan.digests
    done = entries[:first]
    for spec, entry in zip(plan.specs, entries[first:], strict=True):
        if digests is not None and spec.name == TENSOR:
            spec = replace(spec, chunks=[digests[name] for name in covered(before.name for before in done)])
        elif digests is not None:
            spec = replace(spec, chunks=_digested(spec, digests))
        done.append(replace(entry, hash=write_tensor(spec, base + entry.off, locked)))
    return done


def _digested(spec: TensorSpec, digests: dict[str, bytes]) -> Iterator[memoryview]:
    """The chunks of ``spec``, and its digest once they are through."""
    state = hashlib.sha256()
    for chunk in spec.chunks:
        data = flat(chunk)
        state.update(data)
        yield data
    digests[spec.name] = state.digest()
