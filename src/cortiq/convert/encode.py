"""Encodes blocks of rows ahead of the writer, on a few threads, and hands them out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned
from cortiq.errors import NonFinite
from cortiq.layouts import Encoder, layout
from cortiq.layouts.base import Bytes
from cortiq.layouts.native import encode_rows

BLOCK_WEIGHTS = 1 << 20
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows first to last (exclusive) of a tensor."""

    entry: Planned
    first: int
    last: int


class EncodePool:
    """The blocks of ``planned``, encoded with up to ``_AHEAD`` more in flight than there are threads.

    A context manager. ``chunks`` must be consumed for every entry in the order of ``planned``, each to its end.
    """

    def __init__(self, planned: Sequence[Planned], options: ConvertOptions, progress: Progress | None) -> None:
        self._encoder: Encoder = options.encoder
        self._progress = progress
        self._total = sum(entry.tensor.nbytes for entry in planned)
        self._done = 0.0
        self._waiting = iter([block for entry in planned for block in _blocks(entry)])
        self._running: deque[tuple[_Block, Future[tuple[Bytes, ...]]]] = deque()
        self._limit = options.threads + _AHEAD
        self._executor = ThreadPoolExecutor(options.threads, thread_name_prefix="cortiq-encode")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def chunks(self, entry: Planned) -> Iterator[Bytes]:
        """The payload of ``entry`` in order: the first plane block by block, then the other planes.

        The other planes are a few bytes a row and are kept until the first is through. Raises NonFinite with the
        name of the tensor.
        """
        later: list[tuple[Bytes, ...]] = []
        rows = entry.tensor.matrix_shape[0]
        last = 0
        while last < rows:
            block, planes = self._next()
            if block.entry is not entry or block.first != last:
                raise AssertionError("tensors were not consumed in the order they were planned")
            last = block.last
            yield planes[0].reshape(-1)
            later.append(planes[1:])
        for plane in zip(*later, strict=True):
            for piece in plane:
                yield piece.reshape(-1)

    def _next(self) -> tuple[_Block, tuple[Bytes, ...]]:
        while len(self._running) < self._limit:
            block = next(self._waiting, None)
            if block is None:
                break
            self._running.append((block, self._executor.submit(encode_block, block, self._encoder)))
        block, future = self._running.popleft()
        planes = future.result()
        self._advance(block)
        return block, planes

    def _advance(self, block: _Block) -> None:
        tensor = block.entry.tensor
        rows = tensor.matrix_shape[0]
        self._done += tensor.nbytes * (block.last - block.first) / rows
        if self._progress is not None:
            self._progress(min(round(self._done), self._total), self._total)


def encode_block(block: _Block, encoder: Encoder) -> tuple[Bytes, ...]:
    """One u8 array [rows, row_nbytes] per plane. Raises NonFinite with the name of the tensor."""
    tensor = block.entry.tensor
    values = np.ascontiguousarray(tensor.read(block.first, block.last))
    try:
        planes = encode_rows(layout(block.entry.dtype), values, encoder=encoder, first_row=block.first)
    except NonFinite as error:
        error.tensor = tensor.source_name
        raise
    del values
    tensor.release(block.first, block.last)
    return planes


def _blocks(entry: Planned) -> Iterator[_Block]:
    rows, cols = entry.tensor.matrix_shape
    step = max(BLOCK_WEIGHTS // cols, 1)
    for first in range(0, rows, step):
        yield _Block(entry, first, min(first + step, rows))
