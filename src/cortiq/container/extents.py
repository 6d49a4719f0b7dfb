"""What each byte of a file belongs to: live ranges and the gaps between them (SPEC 4, 9)."""

from __future__ import annotations

from typing import NamedTuple

from cortiq.container.envelope import NBYTES, Range
from cortiq.container.file import File

_SECTIONS = ("header", "directory", "masks", "vocab", "index")


class Extent(NamedTuple):
    """Bytes ``start`` to ``end`` of the file that a section or a tensor called ``name`` owns."""

    start: int
    end: int
    name: str


def extents(file: File) -> list[Extent]:
    """All live ranges by offset. Aliased tensors appear each."""
    live = [Extent(0, NBYTES, "envelope")]
    for name in _SECTIONS:
        part = file.envelope.section(name)
        if part.nbytes:
            live.append(Extent(part.offset, part.end, name))
    table = file.tensors.table
    starts = table.column("off").tolist()
    sizes = table.column("nbytes").tolist()
    base = file.envelope.data.offset
    for name, off, nbytes in zip(table.names, starts, sizes, strict=True):
        if nbytes:
            live.append(Extent(base + off, base + off + nbytes, name))
    return sorted(live)


def gaps(file: File) -> list[Range]:
    """Ranges between and behind the live ones, by offset."""
    found, cursor = [], 0
    for start, end, _ in extents(file):
        if start > cursor:
            found.append(Range(cursor, start - cursor))
        cursor = max(cursor, end)
    if cursor < file.size:
        found.append(Range(cursor, file.size - cursor))
    return found
