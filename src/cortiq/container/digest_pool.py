"""SHA-256 of what a writer has written, by other threads, while it writes on."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

_BLOCK = 1 << 20
_AHEAD = 1 << 28  # bytes written but not hashed yet, which the system should still have in memory
_THREADS = 4


class DigestPool:
    """Hashes ranges of the file behind the descriptor ``fd``, in the order they are added. A context manager.

    Ranges are read back from the file, so that a producer may use its buffers again. ``known`` are digests of ranges
    before the first that is added.
    """

    def __init__(self, fd: int, known: Iterable[bytes] = ()) -> None:
        self._fd = fd
        self._executor = ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0))), "cortiq-digest")
        self._batch: list[tuple[int, int]] = []
        self._batch_nbytes = 0
        self._running: deque[tuple[int, Future[list[bytes]]]] = deque()
        self._waiting = 0
        self._digests = list(known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def add(self, offset: int, nbytes: int) -> None:
        """Hash a range that has been written. Waits when the hashing has fallen far behind."""
        self._batch.append((offset, nbytes))
        self._batch_nbytes += nbytes
        if self._batch_nbytes >= _BLOCK:
            self._start()
        while self._waiting > _AHEAD and len(self._running) > 1:
            self._collect()

    def digests(self) -> list[bytes]:
        """The digest of every range, the known ones first, in order. Raises OSError as reading does."""
        self._start()
        while self._running:
            self._collect()
        return self._digests

    def _start(self) -> None:
        batch, nbytes = self._batch, self._batch_nbytes
        self._batch, self._batch_nbytes = [], 0
        self._running.append((nbytes, self._executor.submit(_hash_ranges, self._fd, batch)))
        self._waiting += nbytes

    def _collect(self) -> None:
        nbytes, future = self._running[0]
        self._digests += future.result()  # the place where Ctrl-C interrupts: nothing is lost then
        self._running.popleft()
        self._waiting -= nbytes


def _hash_ranges(fd: int, ranges: list[tuple[int, int]]) -> list[bytes]:
    return [_sha256(fd, offset, nbytes) for offset, nbytes in ranges]


def _sha256(fd: int, offset: int, nbytes: int) -> bytes:
    state = hashlib.sha256()
    end = offset + nbytes
    while offset < end:
        block = os.pread(fd, min(_BLOCK, end - offset), offset)
        if not block:
            raise OSError(errno.EIO, "the file became shorter while it was written")
        state.update(block)
        offset += len(block)
    return state.digest()
