"""The recovery record that every growth leaves at its tail, and the two barriers around the envelope (SPEC 9).

To any reader a record is dead bytes. In front of it stands a note for people:

    note JSON | its bytes, u64 | its hash64, u64 | "CMFJRNL1" | envelope before | envelope after | hash64 of the record

The note says when, what, and where the record of the version before is. The record alone is enough to repair a file
whose envelope was torn by a power cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cortiq.container.envelope import NBYTES, Envelope
from cortiq.container.hashing import hash64
from cortiq.container.locking import LockedFile
from cortiq.container.strict_json import dump_json, parse_json
from cortiq.errors import Parse

MAGIC = b"CMFJRNL1"
RECORD_NBYTES = len(MAGIC) + 2 * NBYTES + 8
MAX_NOTE = 4096
_NOTE_TAIL = struct.Struct("<QQ")
_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Record:
    """A recovery record that matches its hash.

    ``offset``         where it is
    ``before, after``  the 128 bytes of both envelopes
    ``note``           when and what, empty when it cannot be read
    """

    offset: int
    before: bytes
    after: bytes
    note: dict[str, Any]

    @property
    def time(self) -> str | None:
        """When it was written, UTC."""
        value = self.note.get("time")
        return value if isinstance(value, str) else None

    @property
    def what(self) -> str | None:
        """What was done."""
        value = self.note.get("what")
        return value if isinstance(value, str) else None

    @property
    def previous(self) -> int | None:
        """Offset of the record of the version before, None for the first growth of a file."""
        value = self.note.get("previous")
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Tail:
    """What ends a growth: the note, and the record of the envelope ``before`` and the one to come."""

    before: Envelope
    note: bytes

    @property
    def nbytes(self) -> int:
        return len(self.note) + _NOTE_TAIL.size + RECORD_NBYTES

    def pack(self, after: Envelope) -> bytes:
        """The bytes for a growth that makes ``after`` the envelope."""
        body = MAGIC + self.before.pack() + after.pack()
        note = self.note + _NOTE_TAIL.pack(len(self.note), hash64(self.note))
        return note + body + struct.pack("<Q", hash64(body))


def make_tail(before: Envelope, what: str, previous: int | None) -> Tail:
    """``what`` is cut so that the note stays short."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Tail(before, dump_json({"time": time, "what": what[: MAX_NOTE // 8], "previous": previous}))


def commit(locked: LockedFile, tail: Tail, offset: int, after: Envelope) -> None:
    """End a growth whose other bytes are written: record at ``offset``, barrier, envelope, barrier.

    The envelope goes in one call; before it a reader sees the old version, after it the new one. What was written is
    opened first, as ``after`` describes it; raises as ``open`` does when it is not valid.
    """
    locked.read(after.pack()).close()
    locked.write_at(offset, memoryview(tail.pack(after)))
    locked.sync()
    locked.drop_signature()
    locked.write_at(0, memoryview(after.pack()))
    locked.sync()


def record_at(data: memoryview, offset: int) -> Record | None:
    """The record at ``offset`` of the bytes of a file, None when there is none that matches its hash."""
    raw = bytes(data[max(offset, 0) : max(offset, 0) + RECORD_NBYTES])
    if offset < 0 or len(raw) != RECORD_NBYTES or not raw.startswith(MAGIC):
        return None
    body, (stored,) = raw[:-8], struct.unpack("<Q", raw[-8:])
    if hash64(body) != stored:
        return None
    start = len(MAGIC)
    return Record(offset, body[start : start + NBYTES], body[start + NBYTES :], _note_before(data, offset))


def records(data: memoryview, start: int = 0) -> Iterator[Record]:
    """Every record from ``start`` to the end of the bytes of a file, the last one first."""
    end = len(data)
    last = record_at(data, end - RECORD_NBYTES)
    if last is not None:
        yield last
        end = last.offset
    while end > start:
        begin = max(start, end - _CHUNK)
        block = bytes(data[begin : end + len(MAGIC) - 1])
        at = block.rfind(MAGIC)
        while at >= 0:
            found = record_at(data, begin + at)
            if found is not None:
                yield found
            at = block.rfind(MAGIC, 0, at + len(MAGIC) - 1)
        end = begin


def _note_before(data: memoryview, offset: int) -> dict[str, Any]:
    """The note in front of the record at ``offset``; nothing depends on it, so one that is damaged is none."""
    if offset < _NOTE_TAIL.size:
        return {}
    nbytes, stored = _NOTE_TAIL.unpack_from(data, offset - _NOTE_TAIL.size)
    start = offset - _NOTE_TAIL.size - nbytes
    if nbytes > MAX_NOTE or start < 0:
        return {}
    raw = bytes(data[start : start + nbytes])
    if hash64(raw) != stored:
        return {}
    try:
        note = parse_json(raw, section="note", offset=start)
    except Parse:
        return {}
    return note if isinstance(note, dict) else {}
