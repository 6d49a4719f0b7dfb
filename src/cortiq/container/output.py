"""A file that appears under its name complete and on disk, or not at all.

A sibling under a temporary name is filled, synced, renamed over the target, and the folder is synced. A target that
somebody has mapped keeps its inode. Bytes 0 to 127 stay zero until the caller writes them last, so a leaked temporary
file is never taken for a model.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from cortiq.container.disk import Disk
from cortiq.container.huge_pages import HUGE_PAGE, make_huge

_STALE_SECONDS = 24 * 3600
_UMASK = re.compile(r"^Umask:\s*([0-7]+)$", re.MULTILINE)


class AtomicFile:
    """Writes ``path`` as a whole. A context manager: leaving it without ``commit`` removes what was written.

    Raises OSError as the system does. A symbolic link at ``path`` is replaced, not followed.
    """

    disk: ClassVar[Disk] = Disk()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        self.folder = Path(os.path.realpath(given.parent))
        self.target = self.folder / given.name
        if not given.name or self.target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        _remove_stale(self.folder, given.name)
        self._published = False
        self._size = 0
        self._huge: set[int] = set()
        self._fd: int | None
        self.temporary, self._fd = self._open()

    @property
    def fd(self) -> int:
        if self._fd is None:
            raise ValueError("the file is finished")
        return self._fd

    def allocate(self, size: int) -> None:
        """Make the file ``size`` zero bytes long, reserving the space where the system can. ENOSPC comes here."""
        self.disk.resize(self.fd, size)
        self.disk.allocate(self.fd, 0, size)
        self._size = size

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write all of ``data``, a flat view of bytes, at ``offset``."""
        self._prepare(offset, offset + len(data))
        self.disk.write_at(self.fd, offset, data)

    def commit(self) -> None:
        """Sync, rename over the target, sync the folder. The file is final once this returns."""
        self.seal()
        self.publish()
        self.disk.sync_dir(self.folder)

    def seal(self) -> None:
        """Set the permissions and sync: nothing is left to be written."""
        os.fchmod(self.fd, _mode(self.target))
        self.disk.sync(self.fd)

    def publish(self) -> None:
        """Rename a sealed file over the target. The name is on the disk when the folder has been synced."""
        self.disk.rename(self.temporary, self.target)
        self._published = True
        self._close()

    def discard(self) -> None:
        """Remove the temporary file, if it is still there."""
        self._close()
        if not self._published:
            self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _prepare(self, start: int, end: int) -> None:
        """See that who maps the file gets huge pages. One that is written as a whole becomes huge without help."""
        for index in {start // HUGE_PAGE, (end - 1) // HUGE_PAGE} - self._huge:
            if (index + 1) * HUGE_PAGE <= self._size:
                make_huge(self.fd, index)
                self._huge.add(index)

    def _open(self) -> tuple[Path, int]:
        """What is written until it gets its name, and a descriptor of it."""
        path = self.folder / f".{self.target.name}.tmp.{os.getpid()}.{secrets.token_hex(4)}"
        return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def commit_set(files: Sequence[AtomicFile]) -> None:
    """Commit files of one folder that belong together: the first appears when all others are there and on disk.

    Whoever finds the new first file finds the others new. Until then it is the old one, or there is none.
    """
    for file in files:
        file.seal()
    for file in reversed(files[1:]):
        file.publish()
    first = files[0]
    if len(files) > 1:
        first.disk.sync_dir(first.folder)
    first.publish()
    first.disk.sync_dir(first.folder)


def _mode(target: Path) -> int:
    """Permissions of the regular file that is replaced, else what a new file gets."""
    try:
        found = os.lstat(target).st_mode
    except FileNotFoundError:
        return 0o666 & ~_umask()
    return stat.S_IMODE(found) if stat.S_ISREG(found) else 0o666 & ~_umask()


def _umask() -> int:
    """The umask, read without changing it for other threads where the system tells."""
    try:
        found = _UMASK.search(Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _remove_stale(folder: Path, name: str) -> None:
    """Remove temporary files of this target that a process no longer alive left more than a day ago."""
    pattern = re.compile(re.escape(f".{name}.tmp.") + r"(\d+)\.[0-9a-f]{8}")
    for entry in os.scandir(folder):
        found = pattern.fullmatch(entry.name)
        if (
            found
            and not is_running(int(found[1]))
            and time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_SECONDS
        ):
            Path(entry.path).unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Whether this machine has a process ``pid``, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
