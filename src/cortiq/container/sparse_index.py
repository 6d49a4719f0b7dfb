"""The sparse index: which groups of 32 neurons and which heads a task uses in a layer (SPEC 7).

It repeats what the masks say, nothing is computed from it and nothing writes it; it is read to be shown and checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cortiq.container.arch import Arch
from cortiq.container.masks import Mask, MaskSet
from cortiq.errors import Bounds, Limit, Parse

GROUP = 32
MAX_ENTRIES = 2**20
_HEAD = struct.Struct("<II")
_ENTRY = struct.Struct("<IIII")

Indices = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, eq=False)
class IndexEntry:
    """Active FFN groups (u16 [n_groups]) and heads (u8 [n_heads]) of one layer for one task, ascending views of the
    section; ``offset`` from its start."""

    task_id: int
    layer: int
    groups: Indices
    heads: Indices
    offset: int
    padding: bytes


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The entries in the order of the file; ``reserved`` should be 0, ``rest`` are the bytes after the last entry."""

    entries: tuple[IndexEntry, ...]
    reserved: int
    rest: int

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[IndexEntry]:
        return iter(self.entries)


def parse_sparse_index(section: memoryview, offset: int) -> SparseIndex:
    """The index in ``section``, which lies at ``offset`` of the file.

    Raises Bounds.index when counts or an entry do not fit, Limit.index beyond a million entries. What the numbers mean
    is ``check_sparse_index``'s.
    """
    if len(section) < _HEAD.size:
        raise _short("the index is too short for its counts", offset, _HEAD.size, len(section))
    count, reserved = _HEAD.unpack_from(section)
    room = (len(section) - _HEAD.size) // _ENTRY.size
    if count > room:
        raise _short("the index has no room for its entries", offset, f"at most {room} entries", count)
    if count > MAX_ENTRIES:
        raise Limit(
            "more entries than the reader accepts",
            code="index",
            section="index",
            offset=offset,
            expected=f"at most {MAX_ENTRIES}",
            found=count,
        )
    at, entries = _HEAD.size, []
    for _ in range(count):
        entry, at = _entry(section, at, offset)
        entries.append(entry)
    return SparseIndex(tuple(entries), reserved, len(section) - at)


def check_sparse_index(index: SparseIndex, arch: Arch, masks: MaskSet | None, offset: int) -> Iterator[Parse]:
    """Parse.index for every entry that cannot be meant: numbers out of range or unsorted, a repeated (task, layer),
    padding that is not zero. The index itself first."""
    if index.reserved or index.rest:
        found = f"reserved {index.reserved}, {index.rest} bytes after the entries"
        yield _odd("the index has a reserved word or bytes after its entries", offset, 0, found)
    groups, heads = -(-arch.intermediate_size // GROUP), arch.num_attention_heads
    known = None if masks is None else {info.task_id for info in masks.infos.values()}
    seen = set()
    for entry in index:
        at = offset + entry.offset
        if (entry.task_id, entry.layer) in seen:
            yield _odd("a task and layer are indexed twice", at, "one entry", f"task {entry.task_id}")
        seen.add((entry.task_id, entry.layer))
        if entry.layer >= arch.num_layers:
            yield _odd("an entry is of a layer the model lacks", at, f"below {arch.num_layers}", entry.layer)
        if known is not None and entry.task_id not in known:
            yield _odd("an entry is of a task without a mask", at, "the id of a mask", entry.task_id)
        for name, values, limit in (("group", entry.groups, groups), ("head", entry.heads, heads)):
            if values.size and ((values[:-1] >= values[1:]).any() or values[-1] >= limit):
                message = f"the {name}s of an entry are not ascending numbers below {limit}"
                yield _odd(message, at, f"below {limit}", values[:8].tolist())
        if any(entry.padding):
            yield _odd("the padding of an entry is not zero", at, 0, entry.padding.hex())


def disagreements(index: SparseIndex, masks: MaskSet, offset: int) -> Iterator[Parse]:
    """Parse.index_masks for every entry that says something else than the mask of its task.

    Only the first pass of a looped model is indexed.
    """
    by_id: Mapping[int, str] = {info.task_id: name for name, info in masks.infos.items()}
    for entry in index:
        if entry.task_id not in by_id:
            continue
        mask = masks[by_id[entry.task_id]]
        if entry.layer >= mask.gates.size:
            continue
        groups, heads = expected_entry(mask, entry.layer)
        if not (np.array_equal(entry.groups, groups) and np.array_equal(entry.heads, heads)):
            yield Parse(
                f"the sparse index contradicts the mask {mask.name!r} in layer {entry.layer}",
                code="index_masks",
                section="index",
                offset=offset + entry.offset,
                expected="the active groups and heads of the mask",
                found=f"{len(entry.groups)} groups, {len(entry.heads)} heads",
            )


def expected_entry(mask: Mask, layer: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups with at least one active neuron, and active heads."""
    return np.unique(np.flatnonzero(mask.ffn_row(layer)) // GROUP), np.flatnonzero(mask.heads[layer])


def _entry(section: memoryview, at: int, offset: int) -> tuple[IndexEntry, int]:
    """The entry at ``at`` and where the next one begins."""
    if len(section) - at < _ENTRY.size:
        raise _short("an entry begins beyond the index", offset + at, _ENTRY.size, len(section) - at)
    task, layer, n_groups, n_heads = _ENTRY.unpack_from(section, at)
    start = at + _ENTRY.size
    end = start + 2 * n_groups + n_heads
    following = -(-end // 4) * 4
    # The last entry of some writers ends without its padding.
    if end > len(section):
        raise _short("an entry does not fit the index", offset + at, f"at most {len(section)} bytes", end)
    groups = np.frombuffer(section, "<u2", n_groups, start) if n_groups else np.zeros(0, np.uint16)
    heads = np.frombuffer(section, np.uint8, n_heads, start + 2 * n_groups) if n_heads else np.zeros(0, np.uint8)
    entry = IndexEntry(task, layer, groups, heads, at, bytes(section[end:following]))
    return entry, min(following, len(section))


def _short(message: str, offset: int, expected: object, found: object) -> Bounds:
    return Bounds(message, code="index", section="index", offset=offset, expected=expected, found=found)


def _odd(message: str, offset: int, expected: object, found: object) -> Parse:
    return Parse(message, code="index", section="index", offset=offset, expected=expected, found=found)
