"""The codecs of the native core: the bytes of the NumPy definitions, at the speed of memory.

A tensor is encoded in blocks of rows, several at a time when an executor is given (the GIL is released), and no more
than a few blocks are in memory at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import NativeMissing, ShapeMismatch, UsageError
from cortiq.layouts.base import Bytes, Encoder, Floats, Layout, Payload, as_bytes
from cortiq.layouts.sizes import Shape, rows_and_cols

_BLOCKS_IN_FLIGHT = 4


def encode_rows(
    layout: Layout, values: NDArray[Any], *, encoder: Encoder = "best", first_row: int = 0, isa: str = ""
) -> tuple[Bytes, ...]:
    """Encode a block of rows: [rows, cols] to one u8 array [rows, row_nbytes] per plane of the payload.

    ``values`` is f32, f16, bf16 (``ml_dtypes.bfloat16``) or u16 (the bits of bf16), C-contiguous. ``first_row`` is
    where the block begins in the tensor, for error messages. ``isa`` picks an instruction set; "" the best.
    Raises NonFinite, UnsupportedFeature for a dtype without codec, UsageError, NativeMissing.
    """
    core = native()
    rows, cols = values.shape
    source = _source_dtype(values)
    planes = tuple(np.empty((rows, nbytes), np.uint8) for nbytes in layout.row_nbytes(cols))
    core.encode(layout.id, encoder, as_bytes(values), source, rows, cols, planes, first_row, isa)
    return planes


def decode_rows(layout: Layout, planes: Iterable[Bytes], rows: int, cols: int, *, isa: str = "") -> Floats:
    """The reverse: one contiguous buffer per plane to f32 [rows, cols]. The planes must be validated."""
    values = np.empty((rows, cols), np.float32)
    native().decode(layout.id, tuple(as_bytes(plane) for plane in planes), rows, cols, values, isa)
    return values


def encode(layout: Layout, values: NDArray[Any], *, encoder: Encoder = "best", isa: str = "") -> bytes:
    """``layout.encode`` by the native core. A u8 layout is refused: its bytes need no encoder."""
    layout.payload_nbytes(values.shape)
    matrix = np.ascontiguousarray(values).reshape(rows_and_cols(values.shape))
    return b"".join(plane.tobytes() for plane in encode_rows(layout, matrix, encoder=encoder, isa=isa))


def decode(layout: Layout, payload: Payload, shape: Shape, *, isa: str = "") -> Floats:
    """``layout.decode`` by the native core."""
    layout.validate(payload, shape)
    data = as_bytes(payload)
    rows, cols = rows_and_cols(shape)
    planes = [data[p.offset : p.offset + rows * p.row_nbytes] for p in layout.planes(shape)]
    return decode_rows(layout, planes, rows, cols, isa=isa).reshape(tuple(shape))


def encode_stream(
    layout: Layout,
    shape: Shape,
    blocks: Iterable[NDArray[Any]],
    *,
    encoder: Encoder = "best",
    executor: Executor | None = None,
) -> Iterator[Bytes]:
    """The payload of a tensor in order, piece by piece, from its blocks of rows in order.

    ``blocks`` are [n, cols] pieces of ``rows_and_cols(shape)``, of an element type ``encode_rows`` takes. With an
    executor up to four blocks are encoded at a time. Planes behind the first (a few bytes a row) are kept until it is
    through. The bytes depend neither on the blocks nor on the executor.

    Raises ShapeMismatch when the blocks do not add up to the shape, and as ``encode_rows``.
    """
    layout.payload_nbytes(shape)
    later: list[tuple[Bytes, ...]] = []
    for planes in _encoded(layout, shape, blocks, encoder, executor):
        yield planes[0].reshape(-1)
        later.append(planes[1:])
    for plane in zip(*later, strict=True):
        for piece in plane:
            yield piece.reshape(-1)


def _encoded(
    layout: Layout, shape: Shape, blocks: Iterable[NDArray[Any]], encoder: Encoder, executor: Executor | None
) -> Iterator[tuple[Bytes, ...]]:
    rows, cols = rows_and_cols(shape)
    first_row = 0
    running: deque[Future[tuple[Bytes, ...]]] = deque()
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != cols or first_row + len(block) > rows:
            found = f"{block.shape} at row {first_row}"
            raise ShapeMismatch("a block of rows does not fit", code="row_block", expected=(rows, cols), found=found)
        if executor is None:
            yield encode_rows(layout, block, encoder=encoder, first_row=first_row)
        else:
            running.append(executor.submit(encode_rows, layout, block, encoder=encoder, first_row=first_row))
            if len(running) == _BLOCKS_IN_FLIGHT:
                yield running.popleft().result()
        first_row += len(block)
    while running:
        yield running.popleft().result()
    if first_row != rows:
        raise ShapeMismatch("rows are missing", code="row_block", expected=rows, found=first_row)


def native() -> ModuleType:
    """The module ``cortiq._native``. Raises NativeMissing with the command that builds it."""
    try:
        from cortiq import _native
    except ImportError as error:
        raise NativeMissing("the native core is not built; run tools/build_native.sh", code="native") from error
    return _native


def _source_dtype(values: NDArray[Any]) -> int:
    name = values.dtype.name
    source = {"float32": 0, "float16": 1, "bfloat16": 2, "uint16": 2}.get(name)
    if source is None or not values.flags.c_contiguous:
        expected = "contiguous f32, f16 or bf16"
        raise UsageError("these weights cannot be encoded", code="element_type", expected=expected, found=name)
    return source
