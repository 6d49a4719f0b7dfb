"""The tensor directory: 56-byte records and a pool of names (SPEC 3).

Parsing checks everything a record says against the rest of the file, on whole columns: a directory of 20,000
tensors costs milliseconds, and Python objects are made for the tensors that are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.envelope import Envelope
from cortiq.container.names import read_names
from cortiq.container.records_table import COUNTS_NBYTES, MAX_NDIM, RECORD, RecordTable
from cortiq.container.tensor import TensorEntry
from cortiq.container.tensor_checks import check_ranges, check_types
from cortiq.errors import Bounds

_ENTRY = struct.Struct("<IHBB6IQQQ")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Directory(Mapping[str, TensorEntry]):
    """The tensors of a file by name, in the order of the directory. Read-only.

    ``raw`` is the bytes as stored, ``table`` their columns, ``positions`` the number of each name's record.
    """

    raw: bytes
    table: RecordTable
    positions: Mapping[str, int]

    def __getitem__(self, name: str) -> TensorEntry:
        return self.at(self.positions[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.names)

    def __len__(self) -> int:
        return len(self.table.names)

    def __contains__(self, name: object) -> bool:
        return name in self.positions

    def at(self, i: int) -> TensorEntry:
        """Entry of record ``i``."""
        at = COUNTS_NBYTES + RECORD.itemsize * i
        _, _, dtype, ndim, *shape, off, nbytes, digest = _ENTRY.unpack_from(self.raw, at)
        return TensorEntry(self.table.names[i], dtype, tuple(shape[:ndim]), off, nbytes, digest)


def parse_directory(raw: bytes, envelope: Envelope) -> Directory:
    """The directory in ``raw``, checked against the sections of ``envelope``.

    Raises Bounds with one of the codes ``dir_count``, ``pool``, ``name``, ``size_overflow``, ``nbytes``, ``tensor``,
    ``tensor_align``, ``tensor_overlap``, ``tensor_over_section``; Parse with one of ``name_empty``, ``name_utf8``,
    ``name_ctrl``, ``name_dup``, ``dtype``, ``ndim``, ``shape_tail``, or the shape rules of the layouts.
    """
    base = envelope.directory.offset
    count, pool_offset = _counts(raw, base)
    records: NDArray[Any] = np.frombuffer(raw, dtype=RECORD, count=count, offset=COUNTS_NBYTES)
    positions = read_names(raw[pool_offset:], records["name_off"], records["name_len"], base)
    directory = Directory(raw, RecordTable(records, tuple(positions), base), MappingProxyType(positions))
    check_types(directory.table)
    check_ranges(directory.table, envelope)
    return directory


def encode_directory(entries: Iterable[TensorEntry]) -> bytes:
    """Records in the given order, then their names without gaps. Unused shape slots are zero."""
    records, names, offset = [], [], 0
    for entry in entries:
        name = entry.name.encode("utf-8")
        shape = (*entry.shape, *(0,) * (MAX_NDIM - len(entry.shape)))
        head = (offset, len(name), entry.dtype, len(entry.shape))
        records.append(_ENTRY.pack(*head, *shape, entry.off, entry.nbytes, entry.hash))
        names.append(name)
        offset += len(name)
    counts = struct.pack("<QQ", len(records), COUNTS_NBYTES + RECORD.itemsize * len(records))
    return counts + b"".join(records) + b"".join(names)


def directory_nbytes(names: Iterable[str]) -> int:
    """Size of the directory ``encode_directory`` makes for tensors of these names."""
    return COUNTS_NBYTES + sum(RECORD.itemsize + len(name.encode("utf-8")) for name in names)


def _counts(raw: bytes, base: int) -> tuple[int, int]:
    count, pool_offset = struct.unpack_from("<QQ", raw)
    room = (len(raw) - COUNTS_NBYTES) // RECORD.itemsize
    if count > room:
        raise Bounds(
            "the directory has no room for its records",
            code="dir_count",
            section="directory",
            offset=base,
            expected=f"at most {room}",
            found=count,
        )
    records_end = COUNTS_NBYTES + RECORD.itemsize * count
    if not records_end <= pool_offset <= len(raw):
        raise Bounds(
            "the name pool does not lie between the records and the end of the directory",
            code="pool",
            section="directory",
            offset=base + 8,
            expected=f"{records_end} to {len(raw)}",
            found=pool_offset,
        )
    return count, pool_offset
