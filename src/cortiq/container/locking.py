"""A file held for writing in place (SPEC 9): one writer at a time, and never a file somebody else relies on.

The lock belongs to the inode. Whoever replaces the file under its name (a compaction) holds the lock of the inode it
replaces, and whoever waited for that lock looks again whether the name still means the inode it got.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from cortiq.container.disk import Disk
from cortiq.container.file import File
from cortiq.container.reader import open_descriptor
from cortiq.errors import Busy, CortiqError, UsageError

SIGNATURE_SUFFIX = ".sig"
STALE_SUFFIX = ".sig.stale"
_ATTEMPTS = 1000
_STATFS_NBYTES = 256
# File systems of which other machines may have the file open; whether they see our lock is not for us to know.
_NETWORK = {0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x01021997: "9P"}


@dataclass(frozen=True, slots=True)
class InPlace:
    """What somebody who changes a file in place allows.

    ``anyway``          a symbolic link, which is followed, or a file that has other names
    ``drop_signature``  a signature beside it, which is renamed to ``.sig.stale``
    ``lock``            False where locks do not work: nobody else may write to the file meanwhile
    ``wait``            wait for another writer instead of raising Busy
    """

    anyway: bool = False
    drop_signature: bool = False
    lock: bool = True
    wait: bool = False


class LockedFile:
    """A regular file open for writing under an exclusive lock. A context manager.

    Raises UsageError with one of the codes ``symlink``, ``links``, ``not_regular``, ``network``, ``signed``, Busy with
    ``locked`` or ``replaced``, and OSError as the system does. Nothing has been written then.
    """

    disk: ClassVar[Disk] = Disk()

    def __init__(self, path: str | os.PathLike[str], allowed: InPlace) -> None:
        given = Path(path)
        if given.is_symlink() and not allowed.anyway:
            raise _refused("a symbolic link", "symlink", given)
        self.path = Path(os.path.realpath(given)) if allowed.anyway else given
        self._locks = allowed.lock
        self.fd = self._open(allowed)
        try:
            self._signature = self._check_signature(allowed)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        return os.fstat(self.fd).st_size

    def read(self, head: bytes | None = None) -> File:
        """The file as its envelope describes it, or as ``head`` does. Raises as ``open``."""
        return open_descriptor(self.fd, self.path, head)

    def allocate(self, offset: int, nbytes: int) -> None:
        """Reserve room behind the end. ENOSPC comes here."""
        self.disk.allocate(self.fd, offset, nbytes)

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write all of ``data``, a flat view of bytes, at ``offset``."""
        self.disk.write_at(self.fd, offset, data)

    def sync(self) -> None:
        """A barrier between what was written before and what is written after."""
        self.disk.sync(self.fd)

    def drop_signature(self) -> None:
        """Take the name off a signature beside the file, which is about to be wrong."""
        if self._signature is not None:
            self.disk.rename(self._signature, self.path.with_name(self.path.name + STALE_SUFFIX))
            self.disk.sync_dir(self.path.parent)
            self._signature = None

    @contextmanager
    def signature_aside(self) -> Iterator[None]:
        """For a replacement of the file: the signature is dropped, and back if the replacement fails."""
        signature = self._signature
        self.drop_signature()
        try:
            yield
        except BaseException:
            if signature is not None:
                self.disk.rename(self.path.with_name(self.path.name + STALE_SUFFIX), signature)
            raise

    def close(self) -> None:
        """Give the lock back. Explicitly: a mapping of the same descriptor would keep it."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            try:
                if self._locks:
                    fcntl.flock(fd, fcntl.LOCK_UN)
            finally:
                os.close(fd)

    def __enter__(self) -> LockedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, allowed: InPlace) -> int:
        """A descriptor of the file that has the name while we hold its lock."""
        for _ in range(_ATTEMPTS):
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                _check_kind(fd, self.path, allowed)
                if allowed.lock:
                    _lock(fd, self.path, wait=allowed.wait)
                if is_named(fd, self.path):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise Busy("the file is being replaced again and again", code="replaced", path=os.fspath(self.path))

    def _check_signature(self, allowed: InPlace) -> Path | None:
        beside = self.path.with_name(self.path.name + SIGNATURE_SUFFIX)
        if not os.path.lexists(beside):
            return None
        if not allowed.drop_signature:
            raise UsageError(
                "the file is signed, and the change would make its signature wrong; --drop-signature sets it aside",
                code="signed",
                path=os.fspath(self.path),
                found=beside.name,
            )
        return beside


def is_named(fd: int, path: Path) -> bool:
    """Whether ``path`` still names the file behind ``fd``."""
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def network_of(fd: int) -> str | None:
    """The kind of network file system that ``fd`` lies on, None for a local one or where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    buffer = ctypes.create_string_buffer(_STATFS_NBYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    word = ctypes.c_long.from_buffer(buffer).value  # f_type comes first
    return _NETWORK.get(word & 0xFFFFFFFF)


def _check_kind(fd: int, path: Path, allowed: InPlace) -> None:
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(
            "not a regular file", code="not_regular", path=os.fspath(path), found=stat.filemode(facts.st_mode)
        )
    if facts.st_nlink > 1 and not allowed.anyway:
        raise _refused("a file that has other names too", "links", path)
    network = network_of(fd) if allowed.lock else None
    if network is not None:
        raise UsageError(
            f"a file on {network}, where a lock may mean nothing; --no-lock if nobody else writes to it",
            code="network",
            path=os.fspath(path),
            expected="a local file system",
            found=network,
        )


def _lock(fd: int, path: Path, *, wait: bool) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        raise Busy(
            "another process is writing to the file; --wait waits for it", code="locked", path=os.fspath(path)
        ) from error


def _refused(what: str, code: str, path: Path) -> CortiqError:
    return UsageError(
        f"{what}: changing it in place changes it for others too; --in-place-anyway does it",
        code=code,
        path=os.fspath(path),
    )
