"""Opening a set: a model in several files, each of them valid alone (SPEC 10).

Header, masks, tokenizer, sparse index and the registry of skills are those of file 1; the directories are merged. A
set that is not whole, or whose files do not belong together, is refused by naming the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from cortiq.container.directory import Directory
from cortiq.container.file import File
from cortiq.container.hashing import hash64
from cortiq.container.header import ShardInfo
from cortiq.container.reader import open_single
from cortiq.container.records_table import COUNTS_NBYTES, RECORD, RecordTable
from cortiq.container.shard_names import shard_name
from cortiq.errors import Parse, Shard, UsageError


def open_set(named: File) -> File:
    """The set that ``named``, one of its files, belongs to. Takes ``named`` over: it is closed when this raises.

    The files are those beside it whose names its header demands. ``parts`` of the result has them in order.

    Raises Shard.missing for a file that is not there or cannot be opened as one, Shard.mismatch where a name and a
    header disagree, Shard.set_mismatch for a file of another set, Parse.name_dup for a tensor in two files, and what
    ``open_single`` raises for a sibling.
    """
    with ExitStack() as stack:
        stack.enter_context(named)
        shard = named.header.shard
        assert shard is not None
        base = _base(named, shard)
        parts: list[File] = []
        for no in range(1, shard.count + 1):
            path = named.local_path.with_name(shard_name(base, no, shard.count))
            part = named if no == shard.no else stack.enter_context(_open_sibling(path))
            _check(part, no, shard.count, parts[0] if parts else part)
            parts.append(part)
        merged = merge_directories(parts)
        stack.pop_all()
    return replace(parts[0], tensors=merged, parts=tuple(parts), _read={})


def merge_directories(parts: Sequence[File]) -> Directory:
    """One directory with the tensors of all files in order, each with its offset in its own file.

    Raises Parse.name_dup for a name that two files have.
    """
    positions: dict[str, int] = {}
    records, pools, pool_nbytes = [], [], 0
    for part in parts:
        for name in part.tensors:
            if name in positions:
                raise _duplicate(name, part, next(other for other in parts if name in other.tensors))
            positions[name] = len(positions)
        pool = part.tensors.raw[int.from_bytes(part.tensors.raw[8:16], "little") :]
        own = part.tensors.table.records.copy()
        own["name_off"] += pool_nbytes
        records.append(own)
        pools.append(pool)
        pool_nbytes += len(pool)
    columns = np.concatenate(records)
    counts = np.array([len(columns), COUNTS_NBYTES + RECORD.itemsize * len(columns)], "<u8")
    raw = counts.tobytes() + columns.tobytes() + b"".join(pools)
    return Directory(raw, RecordTable(columns, tuple(positions), 0), MappingProxyType(positions))


def _base(named: File, shard: ShardInfo) -> str:
    """What the names of the set have in common, from the name of one file and what its header says."""
    ending = shard_name("", shard.no, shard.count)
    if not named.name.endswith(ending):
        raise _mismatch(named, f"a name that ends with {ending}", named.name)
    return named.name.removesuffix(ending)


def _open_sibling(path: Path) -> File:
    try:
        return open_single(path)
    except (FileNotFoundError, PermissionError, UsageError) as error:
        raise Shard(
            "a file of the set is missing or cannot be read",
            code="missing",
            path=str(path),
            expected=path.name,
            found=error.strerror if isinstance(error, OSError) else error.message,
        ) from error


def _check(part: File, no: int, count: int, first: File) -> None:
    """``part`` says that it is file ``no`` of ``count``, and of the set that ``first`` is of."""
    shard = part.header.shard
    if shard is None or (shard.no, shard.count) != (no, count):
        raise _mismatch(part, f"file {no} of {count}", "no set" if shard is None else f"{shard.no} of {shard.count}")
    leader = first.header.shard
    assert leader is not None
    if shard.set != leader.set:
        raise _foreign(part, f"set {leader.set or 'not stated'}", f"set {shard.set or 'not stated'}")
    if shard.set is None and part.header["arch"] != first.header["arch"]:
        raise _foreign(part, f"the arch of {first.name}", "another")
    # Not of file 1 itself: a tool that does not know the field may have put tensors into it.
    stated = leader.dirs[no - 1] if leader.dirs is not None and no > 1 else None
    found = 0 if stated is None else part.dir_hash or hash64(part.tensors.raw)
    if stated is not None and stated != found:
        raise _foreign(part, f"directory {stated:016x}", f"{found:016x}")


def _mismatch(part: File, expected: str, found: str) -> Shard:
    message = "the name and the header of a file disagree about its place in a set"
    return _refused("mismatch", message, part, expected, found)


def _foreign(part: File, expected: str, found: str) -> Shard:
    return _refused("set_mismatch", "the file is of another set than the first one", part, expected, found)


def _refused(code: str, message: str, part: File, expected: str, found: str) -> Shard:
    return Shard(
        message,
        code=code,
        path=os.fspath(part.path),
        section="header",
        offset=part.envelope.header.offset,
        expected=expected,
        found=found,
    )


def _duplicate(name: str, part: File, other: File) -> Parse:
    return Parse(
        f"{other.name} has a tensor of this name too",
        code="name_dup",
        path=os.fspath(part.path),
        section="directory",
        tensor=name,
        offset=part.envelope.directory.offset,
        expected="each name in one file of a set",
        found=name,
    )
