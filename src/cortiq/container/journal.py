"""Lines of text that say how far a piece of work is, of which those count that reached the disk whole.

A line is ``SUM TEXT``, where SUM is the first 16 hexadecimal digits of SHA-256 over the SUM of the line before it, 16
zeros for the first, and TEXT. Lines count up to the first that is not as it should be: a power cut or a full disk may
have left a part of one, or anything behind the last.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cortiq.container.disk import Disk
from cortiq.container.locking import is_named
from cortiq.errors import Busy, UsageError

_ATTEMPTS = 1000
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Line:
    """``end`` is where it ends in the file, in bytes."""

    text: bytes
    sum: bytes
    end: int


_START = _Line(b"", b"0" * 16, 0)


class Journal:
    """The journal at ``path``, made when there is none, held under an exclusive lock until it is closed.

    ``texts`` are those of the lines that count. Raises Busy.locked when another process holds it, UsageError.resume
    for something that is not a file of ours, OSError as the system does.
    """

    disk: ClassVar[Disk] = Disk()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open_locked(path)
        self._lines = _whole_lines(_read_all(self._fd))

    @property
    def texts(self) -> list[bytes]:
        return [line.text for line in self._lines]

    def cut(self, count: int) -> None:
        """Forget all but the first ``count`` lines, and whatever does not count behind them."""
        del self._lines[count:]
        self.disk.resize(self._fd, self._end.end)

    def append(self, texts: Iterable[bytes]) -> None:
        """Add lines, which are on the disk when this returns. Texts have no line feeds."""
        last, data, added = self._end, b"", []
        for text in texts:
            raw = _sum(last.sum, text) + b" " + text + b"\n"
            last = _Line(text, raw[:16], last.end + len(raw))
            data += raw
            added.append(last)
        self.disk.write_at(self._fd, self._end.end, memoryview(data))
        self.disk.sync(self._fd)
        self._lines += added

    def remove(self) -> None:
        """Take its name off and close it. Whoever has opened it meanwhile sees that it is not the one by that name."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Give the lock back."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    @property
    def _end(self) -> _Line:
        return self._lines[-1] if self._lines else _START


def open_own(path: Path) -> int:
    """A descriptor of the regular file at ``path``, made when there is none.

    Raises UsageError.resume for a file that has other names too or is none, OSError as the system does.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    facts = os.fstat(fd)
    if stat.S_ISREG(facts.st_mode) and facts.st_nlink <= 1:
        return fd
    os.close(fd)
    raise UsageError(
        "not what an interrupted attempt leaves",
        code="resume",
        path=os.fspath(path),
        expected="a regular file with one name",
        found=f"{stat.filemode(facts.st_mode)}, {facts.st_nlink} names",
    )


def _open_locked(path: Path) -> int:
    """A descriptor of the file that has the name while we hold its lock."""
    for _ in range(_ATTEMPTS):
        fd = open_own(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_named(fd, path):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            raise Busy("another process is at it", code="locked", path=os.fspath(path)) from error
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), os.fspath(path))


def _read_all(fd: int) -> bytes:
    pieces, offset = [], 0
    while piece := os.pread(fd, _PIECE, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _whole_lines(raw: bytes) -> list[_Line]:
    lines: list[_Line] = []
    last = _START
    for line in raw.split(b"\n")[:-1]:
        digits, _, text = line.partition(b" ")
        if digits != _sum(last.sum, text):
            break
        last = _Line(text, digits, last.end + len(line) + 1)
        lines.append(last)
    return lines


def _sum(before: bytes, text: bytes) -> bytes:
    return hashlib.sha256(before + text).hexdigest()[:16].encode()
