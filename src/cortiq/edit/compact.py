"""Compaction (SPEC 9): the current version alone, written as a new file. Dead bytes and history are gone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cortiq.container.digest import FIELD
from cortiq.container.file import File
from cortiq.container.header import HASHED_SECTIONS
from cortiq.container.locking import InPlace, LockedFile
from cortiq.container.reader import open_single
from cortiq.container.writer import write_file
from cortiq.edit.carried import Progress, carried
from cortiq.errors import UsageError


@dataclass(frozen=True, slots=True)
class Compacted:
    """Bytes of the file before and after."""

    before: int
    after: int


def compact(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    allowed: InPlace | None = None,
    progress: Progress | None = None,
) -> Compacted:
    """Write the file anew, to ``output`` or under its own name, every payload checked against its hash.

    The same content gives the same bytes. Readers of the old file keep it. ``progress`` is called with the bytes done
    and all bytes.

    Raises what ``open``, ``LockedFile`` and ``write_file`` raise, and UsageError.shards. The old file is untouched
    then.
    """
    if output is not None:
        with open_single(path) as file:
            return _write(file, Path(output), progress)
    with LockedFile(path, allowed or InPlace()) as locked, locked.read() as file, locked.signature_aside():
        return _write(file, locked.path, progress)


def _write(file: File, target: Path, progress: Progress | None) -> Compacted:
    shard = file.header.shard
    if shard is not None and shard.count > 1:
        raise UsageError(
            "one file of a shard set is not compacted alone: merge the set first",
            code="shards",
            path=str(file.path),
            found=f"shard {shard.no} of {shard.count}",
        )
    # Digests name the directory, which changes; without them the header stays as it is, byte for byte.
    header = file.header.to_dict() if FIELD in file.header else file.header
    masks, vocab, index = (file.section(name) for name in HASHED_SECTIONS)
    write_file(target, header, carried(file, progress), masks=masks, vocab=vocab, index=index)
    return Compacted(file.size, target.stat().st_size)
