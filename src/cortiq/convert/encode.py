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
from cortiq.layouts.native import encode_rows, vbit_pack, vbit_scales
from cortiq.layouts.sizes import GROUP
from cortiq.layouts.vbit import Vbit

BLOCK_WEIGHTS = 1 << 20
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows first to last (exclusive) of a tensor. ``part`` 1 is the second time they pass: packed rows of vbit."""

    entry: Planned
    first: int
    last: int
    part: int = 0


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
        if entry.widths is not None:
            yield from self._vbit_chunks(entry, entry.widths)
            return
        later: list[tuple[Bytes, ...]] = []
        for planes in self._pass(entry):
            yield planes[0].reshape(-1)
            later.append(planes[1:])
        for plane in zip(*later, strict=True):
            for piece in plane:
                yield piece.reshape(-1)

    def _vbit_chunks(self, entry: Planned, widths: Bytes) -> Iterator[Bytes]:
        """Widths, scales, table of rows, and in a second pass over the tensor the packed rows."""
        kind = layout(entry.dtype)
        assert isinstance(kind, Vbit)
        yield widths
        for (scales,) in self._pass(entry):
            yield scales.reshape(-1)
        yield kind.row_table(widths, entry.tensor.shape[1] // GROUP)
        for (packed,) in self._pass(entry, 1):
            yield packed

    def _pass(self, entry: Planned, part: int = 0) -> Iterator[tuple[Bytes, ...]]:
        """The blocks of a tensor in order."""
        rows = entry.tensor.matrix_shape[0]
        last = 0
        while last < rows:
            block, planes = self._next()
            if block.entry is not entry or block.first != last or block.part != part:
                raise AssertionError("tensors were not consumed in the order they were planned")
            last = block.last
            yield planes

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
        blocks = tensor.matrix_shape[0] * _passes(block.entry)
        self._done += tensor.nbytes * (block.last - block.first) / blocks
        if self._progress is not None:
            self._progress(min(round(self._done), self._total), self._total)


def encode_block(block: _Block, encoder: Encoder) -> tuple[Bytes, ...]:
    """One u8 array [rows, row_nbytes] per plane, for vbit what the pass is about.

    Raises NonFinite with the name of the tensor.
    """
    entry, tensor = block.entry, block.entry.tensor
    values = np.ascontiguousarray(tensor.read(block.first, block.last))
    try:
        if entry.widths is None:
            planes = encode_rows(layout(entry.dtype), values, encoder=encoder, first_row=block.first)
        else:
            widths = entry.widths[block.first : block.last]
            scales = vbit_scales(values, widths, first_row=block.first)
            planes = (scales if block.part == 0 else vbit_pack(values, widths, scales),)
    except NonFinite as error:
        error.tensor = tensor.source_name
        raise
    del values
    tensor.release(block.first, block.last)
    return planes


def _blocks(entry: Planned) -> Iterator[_Block]:
    for part in range(_passes(entry)):
        for first, last in entry.tensor.spans(BLOCK_WEIGHTS):
            yield _Block(entry, first, last, part)


def _passes(entry: Planned) -> int:
    return 1 if entry.widths is None else 2
