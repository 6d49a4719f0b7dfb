"""Encodes blocks of rows ahead of the writer, on a few threads, and hands them out in order.

An encoder that needs to know the whole tensor first gets it by a pass over the source, in blocks too: no tensor is ever
in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned, take_survey
from cortiq.errors import NonFinite
from cortiq.layouts import Encoder, layout
from cortiq.layouts.base import NOTHING, Bytes, Survey
from cortiq.layouts.native import encode_rows

BLOCK_WEIGHTS = 1 << 20
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows first to last (exclusive) of a tensor."""

    entry: Planned
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A block in the layout: what it contributes to each plane, and to the end of the tail."""

    planes: tuple[Bytes, ...]
    tail: Bytes


@dataclass(frozen=True, slots=True)
class _Job:
    block: _Block
    survey: Future[Survey]
    encoded: Future[Encoded]


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
        self._running: deque[_Job] = deque()
        self._survey: Future[Survey] = Future()
        self._limit = options.threads + _AHEAD
        self._executor = ThreadPoolExecutor(options.threads, thread_name_prefix="cortiq-encode")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def chunks(self, entry: Planned) -> Iterator[Bytes]:
        """The payload of ``entry`` in order: the first plane block by block, then the other planes and the tail.

        These are a few bytes a row, or 1/16 byte a weight at most, and are kept until the first plane is through.
        Raises NonFinite with the name of the tensor.
        """
        encoded: list[Encoded] = []
        head = NOTHING
        rows, cols = entry.tensor.matrix_shape
        last = 0
        while last < rows:
            job = self._next()
            if job.block.entry is not entry or job.block.first != last:
                raise AssertionError("tensors were not consumed in the order they were planned")
            last = job.block.last
            done = job.encoded.result()
            yield done.planes[0]
            encoded.append(Encoded(done.planes[1:], done.tail))
            if last == rows:
                head = layout(entry.dtype).tail_head(rows, cols, job.survey.result())
        for plane in zip(*(done.planes for done in encoded), strict=True):
            yield from plane
        yield from (part for part in (head, *(done.tail for done in encoded)) if part.size)

    def _next(self) -> _Job:
        while len(self._running) < self._limit:
            block = next(self._waiting, None)
            if block is None:
                break
            self._running.append(self._start(block))
        job = self._running.popleft()
        job.encoded.result()
        self._advance(job.block)
        return job

    def _start(self, block: _Block) -> _Job:
        """Jobs start in the order they are submitted, so a survey never waits for the blocks that wait for it."""
        if block.first == 0:
            self._survey = self._executor.submit(_survey_of, block.entry)
        encoded = self._executor.submit(encode_block, block, self._encoder, self._survey)
        return _Job(block, self._survey, encoded)

    def _advance(self, block: _Block) -> None:
        tensor = block.entry.tensor
        rows = tensor.matrix_shape[0]
        self._done += tensor.nbytes * (block.last - block.first) / rows
        if self._progress is not None:
            self._progress(min(round(self._done), self._total), self._total)


def encode_block(block: _Block, encoder: Encoder, survey: Future[Survey]) -> Encoded:
    """Raises NonFinite with the name of the tensor."""
    tensor, kind, known = block.entry.tensor, layout(block.entry.dtype), survey.result()
    values = np.ascontiguousarray(tensor.read(block.first, block.last))
    try:
        planes = encode_rows(kind, values, encoder=encoder, survey=known, first_row=block.first)
    except NonFinite as error:
        error.tensor = tensor.source_name
        raise
    tail = kind.tail_rows(values, known, block.first)
    del values
    tensor.release(block.first, block.last)
    return Encoded(planes, tail)


def _survey_of(entry: Planned) -> Survey:
    return take_survey(entry.tensor, entry.dtype) if entry.survey is None else entry.survey


def _blocks(entry: Planned) -> Iterator[_Block]:
    rows, cols = entry.tensor.matrix_shape
    unit = layout(entry.dtype).block_rows(cols)
    step = max(BLOCK_WEIGHTS // cols // unit, 1) * unit
    for first in range(0, rows, step):
        yield _Block(entry, first, min(first + step, rows))
