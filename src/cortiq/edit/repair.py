"""Repair of a file that does not open: the envelope of the latest version that is whole is written again (SPEC 9).

A power cut may tear the 128 bytes of the envelope on a disk that does not write a sector at once. The recovery record
at the tail, which was on the disk before, holds both the old and the new envelope.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cortiq.container.file import File
from cortiq.container.locking import InPlace, LockedFile
from cortiq.container.mapping import Mapping
from cortiq.container.parallel_hash import hash_all
from cortiq.container.recovery import Record, records
from cortiq.errors import CortiqError, Parse


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done.

    ``repaired`` False when the file was whole already
    ``problem``  what was wrong, None when nothing was
    ``lost``     changes made after the version that is the current one now, the latest first
    ``damaged``  tensors of that version whose bytes do not match their hash
    """

    repaired: bool
    problem: CortiqError | None = None
    lost: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    head: bytes
    lost: tuple[str, ...]
    damaged: tuple[str, ...]


def repair(path: str | os.PathLike[str], allowed: InPlace | None = None) -> Repair:
    """Make a file that does not open valid again. A file that opens is left alone.

    Of the versions that open, the latest one whose tensors all match their hashes becomes the current one, or the
    one with the fewest damaged tensors.

    Raises what ``LockedFile`` raises, OSError, and Parse.unrecoverable when no version opens.
    """
    # A signature is that of a whole version, perhaps of the one that comes back: it stays where it is.
    with LockedFile(path, replace(allowed or InPlace(), drop_signature=True)) as locked:
        try:
            locked.read().close()
            return Repair(repaired=False)
        except CortiqError as error:
            problem = error
        best: _Candidate | None = None
        for candidate in _candidates(locked):
            if best is None or len(candidate.damaged) < len(best.damaged):
                best = candidate
            if not best.damaged:
                break
        if best is None:
            raise Parse(
                "no version of the file can be read: it carries no recovery record of a version that is whole",
                code="unrecoverable",
                path=os.fspath(path),
                expected="a recovery record",
                found=problem.kind,
            ) from problem
        locked.write_at(0, memoryview(best.head))
        locked.sync()
        return Repair(True, problem, best.lost, best.damaged)


def _candidates(locked: LockedFile) -> Iterator[_Candidate]:
    """Versions that open, the latest first."""
    if locked.size == 0:
        return
    mapping = Mapping(os.dup(locked.fd))
    lost: tuple[str, ...] = ()
    seen: set[bytes] = set()
    try:
        for record in records(mapping.view(0, mapping.size)):
            for head, missing in ((record.after, lost), (record.before, (*lost, _name(record)))):
                if head not in seen and (damaged := _damaged(locked, head)) is not None:
                    yield _Candidate(head, missing, damaged)
                seen.add(head)
            lost = (*lost, _name(record))
    finally:
        mapping.close()


def _damaged(locked: LockedFile, head: bytes) -> tuple[str, ...] | None:
    """Tensors that do not match their hash, None when the version does not open."""
    try:
        file = locked.read(head)
    except CortiqError:
        return None
    with file:
        return _mismatches(file)


def _mismatches(file: File) -> tuple[str, ...]:
    names = list(file)
    found = hash_all([file[name].raw for name in names], len(os.sched_getaffinity(0)), lambda _: None)
    return tuple(n for n, digest in zip(names, found, strict=True) if digest != file.tensors[n].hash)


def _name(record: Record) -> str:
    return f"{record.what or 'a change'} ({record.time or 'time unknown'})"
