"""hash64, and SHA-256 where it is asked for, of many buffers by several threads."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from cortiq.container.hashing import StreamHash

_BATCH = 1 << 21  # bytes of small buffers a thread takes at once
_LARGE = 1 << 23  # bytes that are worth more than one thread
_STEP = 1 << 25  # bytes between two reports
_STRONG_STEP = 1 << 18  # bytes that stay in the cache between two hashes of them

Done = Callable[[int], None]


def hash_all(buffers: Sequence[memoryview], threads: int, done: Done) -> list[int]:
    """hash64 of each buffer. ``done`` is called in this thread with the bytes hashed since the last call.

    Threads take whole buffers, the largest first; one that is more than a thread's share of all bytes is split.
    """
    work = _Work(buffers, strong=False)
    share = sum(len(buffer) for buffer in buffers) // threads
    split = [i for i in work.order if threads > 1 and len(buffers[i]) > max(share, _LARGE)]
    for i in split:
        work.weak[i] = _hash64(buffers[i], threads, done)
    work.run(work.order[len(split) :], threads, done)
    return work.weak


def hash_all_strong(buffers: Sequence[memoryview], threads: int, done: Done) -> tuple[list[int], list[bytes]]:
    """hash64 and SHA-256 of each buffer, each byte read from memory once. SHA-256 is sequential: none is split."""
    work = _Work(buffers, strong=True)
    work.run(work.order, threads, done)
    return work.weak, work.strong


def _batches(buffers: Sequence[memoryview], order: Sequence[int]) -> list[list[int]]:
    batches: list[list[int]] = []
    size = _BATCH
    for i in order:
        if size >= _BATCH:
            batches.append([])
            size = 0
        batches[-1].append(i)
        size += len(buffers[i])
    return batches


def _hash64(buffer: memoryview, threads: int, done: Done) -> int:
    state = StreamHash(threads)
    for at in range(0, len(buffer), _STEP):
        part = buffer[at : at + _STEP]
        state.update(part)
        done(len(part))
    return state.digest()


def _hash_both(buffer: memoryview, done: Done) -> tuple[int, bytes]:
    weak, strong = StreamHash(), hashlib.sha256()
    for at in range(0, len(buffer), _STRONG_STEP):
        part = buffer[at : at + _STRONG_STEP]
        weak.update(part)
        strong.update(part)
        done(len(part))
    return weak.digest(), strong.digest()


class _Work:
    """Buffers and what is known of them: threads fill ``weak``, and ``strong`` if it is wanted."""

    def __init__(self, buffers: Sequence[memoryview], *, strong: bool) -> None:
        self.buffers = buffers
        self.order = sorted(range(len(buffers)), key=lambda i: len(buffers[i]), reverse=True)
        self.weak = [0] * len(buffers)
        self.strong = [b""] * len(buffers) if strong else []

    def run(self, order: Sequence[int], threads: int, done: Done) -> None:
        """Hash the buffers named by ``order``."""
        batches = _batches(self.buffers, order)
        if threads == 1 or len(batches) < 2:
            for batch in batches:
                self.hash_batch(batch, done)
        else:
            _Pool(self, batches).run(min(threads, len(batches)), done)

    def hash_batch(self, batch: Sequence[int], done: Done) -> None:
        for i in batch:
            if self.strong:
                self.weak[i], self.strong[i] = _hash_both(self.buffers[i], done)
            else:
                self.weak[i] = _hash64(self.buffers[i], 1, done)


class _Pool:
    """This thread and others, which take batches until there are none, or until this one is interrupted."""

    def __init__(self, hasher: _Work, batches: Sequence[Sequence[int]]) -> None:
        self.hasher = hasher
        self.work = deque(batches)
        self.reports: SimpleQueue[int | BaseException | None] = SimpleQueue()
        self.running = 0

    def run(self, threads: int, done: Done) -> None:
        others = [threading.Thread(target=self._help, name=f"cortiq-hash-{i}") for i in range(1, threads)]
        for thread in others:
            thread.start()
        self.running = len(others)
        try:
            while self.work:
                self.hasher.hash_batch(self._next(), done)
                while self.running and not self.reports.empty():
                    self._receive(done)
            while self.running:
                self._receive(done)
        finally:
            self.work.clear()
            for thread in others:
                thread.join()

    def _receive(self, done: Done) -> None:
        """What another thread has to say: bytes it hashed, its failure, or that it has ended."""
        report = self.reports.get()
        if report is None:
            self.running -= 1
        elif isinstance(report, BaseException):
            raise report
        else:
            done(report)

    def _help(self) -> None:
        hashed = 0

        def done(nbytes: int) -> None:
            nonlocal hashed
            hashed += nbytes

        try:
            while self.work:
                self.hasher.hash_batch(self._next(), done)
                self.reports.put(hashed)
                hashed = 0
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.reports.put(error)
        self.reports.put(None)

    def _next(self) -> Sequence[int]:
        try:
            return self.work.popleft()
        except IndexError:  # another thread was faster
            return ()
