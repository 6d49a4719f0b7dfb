"""The versions a grown file still holds, read from its recovery records (SPEC 9)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cortiq.container.envelope import parse_envelope
from cortiq.container.extents import extents
from cortiq.container.file import File
from cortiq.container.locking import InPlace, LockedFile
from cortiq.container.recovery import RECORD_NBYTES, Record, commit, make_tail, record_at, records
from cortiq.errors import CortiqError, UsageError


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a file.

    ``number``  1 for the oldest one known; growth never renumbers
    ``head``    its 128 bytes of envelope
    ``time``    when it was made, UTC; None for the oldest and where the note is lost
    ``what``    what made it
    ``same_as`` the first version with the same envelope: another number when this one went back to that one
    """

    number: int
    head: bytes
    time: str | None
    what: str | None
    same_as: int


@dataclass(frozen=True, slots=True)
class History:
    """All versions, the oldest first; the last one is the current one.

    ``complete`` is False when records of older versions are damaged.
    """

    versions: tuple[Version, ...]
    complete: bool

    def version(self, number: int) -> Version:
        """Raises UsageError.version."""
        if not 1 <= number <= len(self.versions):
            raise UsageError(
                "there is no such version", code="version", expected=f"1 to {len(self.versions)}", found=number
            )
        return self.versions[number - 1]

    def before_current(self) -> Version:
        """What undoing the last change leads to. Going back is no change to be undone: it goes back further.

        Raises UsageError.undo.
        """
        number = self.versions[-1].same_as
        if number == 1:
            raise UsageError("there is nothing to undo: this is the oldest version in the file", code="undo")
        return self.version(self.versions[number - 2].same_as)


def read_history(file: File) -> History:
    """The versions in ``file``."""
    chain, complete = _chain(file)
    made = [(record.after, record.time, record.what) for record in reversed(chain)]
    oldest = chain[-1].before if chain else file.envelope.pack()
    first: dict[bytes, int] = {}
    versions = []
    for number, (head, time, what) in enumerate([(oldest, None, None), *made], 1):
        versions.append(Version(number, head, time, what, first.setdefault(head, number)))
    return History(tuple(versions), complete)


def newest_record(file: File) -> Record | None:
    """The record of the growth that made the current version; None for a file that was written as a whole."""
    data, head = _bytes(file), file.envelope.pack()
    last = record_at(data, file.size - RECORD_NBYTES)
    if last is not None and last.after == head:
        return last
    # Something was begun and not finished since. The record lies behind everything it made live.
    live = max(extent.end for extent in extents(file))
    return next((record for record in records(data, live) if record.after == head), None)


def restore(
    path: str | os.PathLike[str], number: int | None = None, *, allowed: InPlace | None = None, what: str = ""
) -> Version:
    """Make a version the current one again, the one before the last change when ``number`` is None.

    Writes a recovery record and the envelope, nothing else; the version left stays in the file. Gives the version.

    Raises what ``open`` and ``LockedFile`` raise, UsageError.undo, .version and .current, and OSError.
    """
    try:
        with LockedFile(path, allowed or InPlace()) as locked, locked.read() as file:
            history = read_history(file)
            version = history.before_current() if number is None else history.version(number)
            if version.head == file.envelope.pack():
                raise UsageError("this is the current version", code="current", found=number)
            newest, end = newest_record(file), locked.size
            previous = None if newest is None else newest.offset
            tail = make_tail(file.envelope, what or f"back to version {version.same_as}", previous)
            locked.allocate(end, tail.nbytes)
            commit(locked, tail, end, parse_envelope(version.head, end))
            return version
    except CortiqError as error:
        error.path = error.path or os.fspath(path)
        raise


def _chain(file: File) -> tuple[list[Record], bool]:
    """The records from the newest to the oldest, and whether the oldest says that it is the first one."""
    data = _bytes(file)
    chain: list[Record] = []
    record = newest_record(file)
    while record is not None:
        chain.append(record)
        if record.previous is None:
            return chain, bool(record.note)
        before = record_at(data, record.previous) if record.previous < record.offset else None
        if before is None or before.after != record.before:
            return chain, False
        record = before
    return chain, True


def _bytes(file: File) -> memoryview:
    return file.mapping.view(0, file.size)
