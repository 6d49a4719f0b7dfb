"""hash64 of many buffers by several threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from cortiq.container.hashing import StreamHash

_BATCH = 1 << 23  # bytes of small buffers a thread takes at once
_STEP = 1 << 25  # bytes between two reports

Done = Callable[[int], None]


def hash_all(buffers: Sequence[memoryview], threads: int, done: Done) -> list[int]:
    """hash64 of each buffer. ``done`` is called in this thread with the bytes hashed since the last call.

    Threads take whole buffers, the largest first; one that is more than a thread's share of all bytes is split.
    """
    share = sum(len(buffer) for buffer in buffers) // threads
    digests = [0] * len(buffers)
    order = sorted(range(len(buffers)), key=lambda i: len(buffers[i]), reverse=True)
    split = [i for i in order if threads > 1 and len(buffers[i]) > max(share, _BATCH)]
    for i in split:
        digests[i] = _hash(buffers[i], threads, done)
    batches = _batches(buffers, order[len(split) :])
    if threads == 1 or len(batches) < 2:
        for batch in batches:
            _hash_batch(buffers, batch, digests, done)
    else:
        _Pool(buffers, batches, digests).run(min(threads, len(batches)), done)
    return digests


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


def _hash_batch(buffers: Sequence[memoryview], batch: Sequence[int], digests: list[int], done: Done) -> None:
    for i in batch:
        digests[i] = _hash(buffers[i], 1, done)


def _hash(buffer: memoryview, threads: int, done: Done) -> int:
    state = StreamHash(threads)
    for at in range(0, len(buffer), _STEP):
        part = buffer[at : at + _STEP]
        state.update(part)
        done(len(part))
    return state.digest()


class _Pool:
    """Threads that take batches until there are none, or until this thread is interrupted."""

    def __init__(self, buffers: Sequence[memoryview], batches: Sequence[Sequence[int]], digests: list[int]) -> None:
        self.buffers = buffers
        self.work = deque(batches)
        self.digests = digests
        self.reports: SimpleQueue[int | BaseException | None] = SimpleQueue()

    def run(self, threads: int, done: Done) -> None:
        workers = [threading.Thread(target=self._take, name=f"cortiq-hash-{i}") for i in range(threads)]
        for worker in workers:
            worker.start()
        try:
            self._report(threads, done)
        finally:
            self.work.clear()
            for worker in workers:
                worker.join()

    def _report(self, running: int, done: Done) -> None:
        while running:
            report = self.reports.get()
            if report is None:
                running -= 1
            elif isinstance(report, BaseException):
                raise report
            else:
                done(report)

    def _take(self) -> None:
        waiting = 0

        def done(nbytes: int) -> None:
            nonlocal waiting
            waiting += nbytes
            if waiting >= _BATCH:
                self.reports.put(waiting)
                waiting = 0

        try:
            while self.work:
                _hash_batch(self.buffers, self._next(), self.digests, done)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.reports.put(error)
        else:
            self.reports.put(waiting)
        self.reports.put(None)

    def _next(self) -> Sequence[int]:
        try:
            return self.work.popleft()
        except IndexError:  # another thread was faster
            return ()
