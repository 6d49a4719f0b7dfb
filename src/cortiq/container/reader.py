"""Opening a CMF file (SPEC 1.2): everything the envelope, header and directory let us know is checked, once.

The blob is not touched. A file is either valid or opening it raises one error of ``cortiq.errors``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from cortiq.container.envelope import NBYTES
from cortiq.container.file import File
from cortiq.container.location import is_url
from cortiq.container.mapping import Mapping, open_regular
from cortiq.container.metadata import Metadata, read_metadata
from cortiq.errors import Changed, CortiqError

_ATTEMPTS = 8
_PAUSE = 0.001


def open_single(path: str | os.PathLike[str]) -> File:
    """Open one CMF file, also one of a set of shards; a URL is read from afar (``cortiq.container.remote``).

    Raises a FormatError, HashMismatch for a header or directory that does not match its stored hash, OSError when
    the system cannot open the file, UsageError.not_regular, and what ``open_remote`` raises.
    """
    if is_url(path):
        # Whoever opens what is here loads nothing that could reach beyond it.
        from cortiq.container.remote import open_remote

        return open_remote(os.fspath(path))
    return _opened(open_regular(path), path)


def open_descriptor(fd: int, path: str | os.PathLike[str], head: bytes | None = None) -> File:
    """The file behind a descriptor, which stays the caller's, as its envelope describes it or as ``head`` does.

    ``head`` is 128 bytes that were the envelope once (SPEC 9). Raises as ``open_single``.
    """
    return _opened(os.dup(fd), path, head)


@dataclass(frozen=True, slots=True)
class _Descriptor:
    """The bytes behind a descriptor, as many as there are by now."""

    fd: int

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, offset: int, nbytes: int) -> bytes:
        return os.pread(self.fd, nbytes, offset)


def _opened(fd: int, path: str | os.PathLike[str], head: bytes | None = None) -> File:
    """Takes over the descriptor."""
    try:
        # Without read-ahead, so that looking at the head of a file does not load what follows it.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        source = _Descriptor(fd)
        metadata = _read_snapshot(source) if head is None else read_metadata(source, head)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
        mapping = Mapping(fd)
    except CortiqError as error:
        os.close(fd)
        error.path = error.path or os.fspath(path)
        raise
    except BaseException:
        os.close(fd)
        raise
    envelope, header, directory, mask_meta = metadata
    return File(Path(path), envelope, header, directory, mapping, mask_meta)


def _read_snapshot(source: _Descriptor) -> Metadata:
    """Read the metadata; again when another process grew the file in between (SPEC 9)."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        head = source.read(0, NBYTES)
        try:
            return read_metadata(source, head)
        except CortiqError:
            if source.read(0, NBYTES) == head:
                raise
    raise Changed("the file is being rewritten", code="file", section="envelope", offset=0)
