"""A file mapped read-only: an immutable snapshot whose length is fixed when it is opened.

A file that is replaced or removed by name keeps its content here, because the mapping holds the inode. One that shrinks
loses pages: with the native core they read as zeros and ``check_kept`` says so, without it the process ends.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import Any, Protocol

import numpy as np

from cortiq.errors import Bounds, Changed, NativeMissing, UsageError

core: Any
try:
    from cortiq.native import core
except NativeMissing:  # the container works without the core
    core = None


class FileBytes(Protocol):
    """The bytes of an open file of fixed ``size``, mapped or brought from afar when they are viewed.

    ``address`` is where they are in memory; bytes that are not all there raise UsageError.remote.
    """

    @property
    def size(self) -> int: ...

    @property
    def address(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def view(self, offset: int, nbytes: int) -> memoryview: ...

    def release(self, offset: int, nbytes: int) -> None: ...

    def check_unchanged(self) -> None: ...

    def check_usable(self) -> None: ...

    def close(self) -> None: ...


class _Map(mmap.mmap):
    """A mapping and its guard, which lives exactly as long: attributes go before the memory is unmapped."""

    guard: Any = None

    def protect(self) -> int:
        """Guard the mapped bytes against a shrinking file; their address."""
        address: int = np.frombuffer(self, dtype=np.uint8).__array_interface__["data"][0]
        self.guard = None if core is None else core.MapGuard(address, len(self))
        return address


class Mapping:
    """The bytes of an open file.

    ``close`` gives the memory back as soon as no view of it is left; a view taken before stays valid.
    """

    __slots__ = ("_fd", "_map", "_stat", "address", "size")

    def __init__(self, fd: int) -> None:
        """Take over the descriptor ``fd`` of a file that is not empty; when this raises, it is still the caller's."""
        self._stat = os.fstat(fd)
        self.size = self._stat.st_size
        mapped = _Map(fd, self.size, access=mmap.ACCESS_READ)
        self.address = mapped.protect()
        self._fd = fd
        self._map: _Map | None = mapped

    @property
    def closed(self) -> bool:
        return self._map is None

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Read-only view of a range inside the file. Raises UsageError.closed and Bounds.map."""
        if self._map is None:
            raise UsageError("the file is closed", code="closed")
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise Bounds("outside the mapped file", code="map", expected=f"within {self.size} bytes", found=offset)
        return memoryview(self._map)[offset : offset + nbytes]

    def release(self, offset: int, nbytes: int) -> None:
        """Drop the whole pages inside a range from memory; they come back from disk when touched again."""
        if self._map is not None:
            drop_pages(self._map, offset, nbytes)

    def check_unchanged(self) -> None:
        """Raise Changed.file when the mapped inode was written to or resized since it was opened."""
        now = self._now()
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise self._changed(now)

    def check_usable(self) -> None:
        """Raise Changed.file when the bytes that were mapped are no longer those of the file.

        A file that only grew (SPEC 9) keeps them. One that was written to and has its old size counts as rewritten.
        """
        now = self._now()
        rewritten = now.st_size == self.size and now.st_mtime_ns != self._stat.st_mtime_ns
        if now.st_size < self.size or rewritten:
            raise self._changed(now)

    def _now(self) -> os.stat_result:
        if self._map is None:
            raise UsageError("the file is closed", code="closed")
        return os.fstat(self._fd)

    def _changed(self, now: os.stat_result) -> Changed:
        return Changed(
            "the file was modified while it was open",
            code="file",
            expected=f"{self.size} bytes",
            found=f"{now.st_size} bytes, modified later",
        )

    def close(self) -> None:
        """Forget the mapping. Closing twice is allowed."""
        if self._map is not None:
            self._map = None
            os.close(self._fd)

    def __del__(self) -> None:
        if getattr(self, "_map", None) is not None:
            self.close()


def check_kept(view: memoryview) -> None:
    """Raise Changed.file when pages of the mapping that ``view`` belongs to were read after the file had lost them."""
    source = view.obj
    if isinstance(source, _Map) and source.guard is not None and source.guard.lost:
        raise Changed("the file shrank while it was in use", code="file")


def drop_pages(mapped: mmap.mmap, offset: int, nbytes: int) -> None:
    """Tell the system that the whole pages inside a range are not needed again, where it can be told."""
    start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, start, length)


def read_small(path: str | os.PathLike[str], most: int) -> bytes | None:
    """The bytes of a regular file, None when there are more than ``most``. Raises as ``open_regular``."""
    fd = open_regular(path)
    try:
        raw = os.read(fd, most + 1)
    finally:
        os.close(fd)
    return raw if len(raw) <= most else None


def open_regular(path: str | os.PathLike[str]) -> int:
    """A read-only descriptor of a regular file, opened without waiting for a writer.

    Raises OSError as the system does, and UsageError.not_regular for folders, pipes and devices.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise UsageError("not a regular file", code="not_regular", path=os.fspath(path), found=stat.filemode(mode))
    return fd
