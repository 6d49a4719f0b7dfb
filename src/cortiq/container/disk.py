"""What the package does to a disk, in one small class: a test records it and cuts the power between any two steps."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class Output(Protocol):
    """Something that takes bytes at offsets."""

    def write_at(self, offset: int, data: memoryview) -> None: ...


class Disk:
    """Writes, barriers and names. Every method raises OSError as the system does."""

    def resize(self, fd: int, size: int) -> None:
        """Make the file ``size`` bytes long; what is added reads as zero."""
        os.ftruncate(fd, size)

    def allocate(self, fd: int, offset: int, nbytes: int) -> None:
        """Reserve room where the system can, lengthening the file. ENOSPC comes here, before anything is written."""
        if nbytes:
            try:
                os.posix_fallocate(fd, offset, nbytes)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise

    def write_at(self, fd: int, offset: int, data: memoryview) -> None:
        """Write all of ``data``, a flat view of bytes, at ``offset``."""
        while len(data):
            written = os.pwrite(fd, data, offset)
            if written <= 0:
                raise OSError(errno.EIO, "the system wrote nothing")
            offset += written
            data = data[written:]

    def sync(self, fd: int) -> None:
        """A barrier: what was written before it is on the disk when this returns."""
        os.fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        os.rename(source, target)

    def sync_dir(self, folder: Path) -> None:
        """A barrier for the names in a folder."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
