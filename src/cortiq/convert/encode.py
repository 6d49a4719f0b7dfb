"""Encodes blocks of rows ahead of the writer, on a few threads, and hands them out in order.

An encoder that needs to know the whole tensor first gets it by a pass over the source, in blocks too: no tensor is ever
in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Self

import numpy as np

from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned, take_survey
from cortiq.errors import NonFinite
from cortiq.layouts import Encoder, layout
from cortiq.layouts.base import NOTHING, Bytes, Survey
from cortiq.layouts.native import encode_rows, tail_rows

BLOCK_WEIGHTS = 1 << 20
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows first to last (exclusive) of a tensor; ``again`` when they pass a second time, for a long tail."""

    entry: Planned
    first: int
    last: int
    again: bool = False


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

    A context manager. ``chunks`` must be consumed in the order of ``planned``, each to its end, for every entry behind
    the first that is asked for.
    """

    def __init__(self, planned: Sequence[Planned], options: ConvertOptions, progress: Progress | None) -> None:
        self._encoder: Encoder = options.encoder
        self._progress = progress
        self._total = sum(entry.tensor.nbytes for entry in planned)
        self._done = 0.0
        self._waiting = deque(block for entry in planned for block in _blocks(entry))
        self._begun = False
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
        known, kind = NOTHING, layout(entry.dtype)
        for job in self._pass(entry, again=False):
            done, known = job.encoded.result(), job.survey.result()
            yield done.planes[0]
            encoded.append(Encoded(done.planes[1:], done.tail))
        for plane in zip(*(done.planes for done in encoded), strict=True):
            yield from plane
        head = kind.tail_head(*entry.tensor.matrix_shape, known)
        tails = (done.tail for done in encoded)
        if kind.long_tail:
            tails = (job.encoded.result().tail for job in self._pass(entry, again=True))
        yield from (part for part in chain([head], tails) if part.size)

    def _skip_to(self, entry: Planned) -> None:
        """Leave out the entries before the first that is asked for."""
        while not self._begun and self._waiting and self._waiting[0].entry is not entry:
            self._advance(self._waiting.popleft())
        self._begun = True

    def _pass(self, entry: Planned, *, again: bool) -> Iterator[_Job]:
        """The blocks of a tensor in order."""
        rows, last = entry.tensor.matrix_shape[0], 0
        while last < rows:
            self._skip_to(entry)
            job = self._next()
            block = job.block
            if block.entry is not entry or block.first != last or block.again != again:
                raise AssertionError("tensors were not consumed in the order they were planned")
            last = block.last
            yield job

    def _next(self) -> _Job:
        while self._waiting and len(self._running) < self._limit:
            self._running.append(self._start(self._waiting.popleft()))
        job = self._running.popleft()
        job.encoded.result()
        self._advance(job.block)
        return job

    def _start(self, block: _Block) -> _Job:
        """Jobs start in the order they are submitted, so a survey never waits for the blocks that wait for it."""
        if block.first == 0 and not block.again:
            self._survey = self._executor.submit(_survey_of, block.entry)
        encoded = self._executor.submit(encode_block, block, self._encoder, self._survey)
        return _Job(block, self._survey, encoded)

    def _advance(self, block: _Block) -> None:
        tensor = block.entry.tensor
        rows = tensor.matrix_shape[0] * len(_passes(block.entry))
        self._done += tensor.nbytes * (block.last - block.first) / rows
        if self._progress is not None:
            self._progress(min(round(self._done), self._total), self._total)


def encode_block(block: _Block, encoder: Encoder, survey: Future[Survey]) -> Encoded:
    """Raises NonFinite with the name of the tensor."""
    tensor, kind, known = block.entry.tensor, layout(block.entry.dtype), survey.result()
    values = np.ascontiguousarray(tensor.read(block.first, block.last))
    planes: tuple[Bytes, ...] = ()
    tail = NOTHING
    try:
        if not block.again:
            planes = encode_rows(kind, values, encoder=encoder, survey=known, first_row=block.first)
        if block.again == kind.long_tail:
            tail = tail_rows(kind, values, known, first_row=block.first)
    except NonFinite as error:
        error.tensor = tensor.source_name
        raise
    del values
    tensor.release(block.first, block.last)
    return Encoded(planes, tail)


def _survey_of(entry: Planned) -> Survey:
    return take_survey(entry.tensor, entry.dtype) if entry.survey is None else entry.survey


def _blocks(entry: Planned) -> Iterator[_Block]:
    unit = layout(entry.dtype).block_rows(entry.tensor.matrix_shape[1])
    for again in _passes(entry):
        for first, last in entry.tensor.spans(BLOCK_WEIGHTS, unit):
            yield _Block(entry, first, last, again)


def _passes(entry: Planned) -> tuple[bool, ...]:
    """``again`` of each time the rows pass."""
    return (False, True) if layout(entry.dtype).long_tail else (False,)
