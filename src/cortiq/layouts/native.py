"""The codecs of the native core: the bytes of the NumPy definitions, at the speed of memory.

A tensor larger than memory is encoded in blocks of rows; the GIL is released, so several threads may encode at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import UsageError
from cortiq.layouts.base import NOTHING, Bytes, Encoder, Floats, Layout, Payload, Survey, as_bytes
from cortiq.layouts.sizes import GROUP, Shape, rows_and_cols
from cortiq.layouts.vbit import Vbit, row_ends


def encode_rows(
    layout: Layout,
    values: NDArray[Any],
    *,
    encoder: Encoder = "best",
    survey: Survey = NOTHING,
    first_row: int = 0,
    isa: str = "",
) -> tuple[Bytes, ...]:
    """Encode a block of rows: [rows, cols] to one u8 array per plane of the payload.

    ``values`` is f32, f16, bf16 (``ml_dtypes.bfloat16``) or u16 (the bits of bf16), C-contiguous. ``survey`` is that of
    the whole tensor, for layouts that need one. ``first_row`` is where the block begins in the tensor, a multiple of
    ``layout.block_rows``; it is named in error messages. ``isa`` picks an instruction set; "" the best.
    Raises NonFinite, UnsupportedFeature for a dtype without codec, UsageError, NativeMissing.
    """
    from cortiq.native import core

    source = _source(values)
    planes = tuple(np.empty(nbytes, np.uint8) for nbytes in layout.plane_nbytes(*values.shape))
    core.encode(layout.id, layout.native_encoder(encoder), source, planes, survey.view(np.uint8), first_row, isa)
    return planes


def encode(layout: Layout, values: NDArray[Any], *, encoder: Encoder = "best", isa: str = "") -> bytes:
    """``layout.encode`` by the native core. A u8 layout is refused: its bytes need no encoder."""
    layout.payload_nbytes(values.shape)
    matrix = np.ascontiguousarray(values).reshape(rows_and_cols(values.shape))
    survey = layout.survey(lambda first, last: matrix[first:last], *matrix.shape)
    planes = encode_rows(layout, matrix, encoder=encoder, survey=survey, isa=isa)
    tail = layout.tail_head(*matrix.shape, survey), tail_rows(layout, matrix, survey, isa=isa)
    return b"".join(part.tobytes() for part in (*planes, *tail))


def tail_rows(layout: Layout, values: NDArray[Any], survey: Survey, *, first_row: int = 0, isa: str = "") -> Bytes:
    """``layout.tail_rows``, by the native core where the tail is long."""
    if not isinstance(layout, Vbit):
        return layout.tail_rows(values, survey, first_row)
    from cortiq.native import core

    widths = survey[first_row : first_row + len(values)]
    packed = np.empty(int(row_ends(widths, values.shape[1] // GROUP)[-1]), np.uint8)
    core.vbit_pack(_source(values), widths, packed, isa)
    return packed


def row_absmax(values: NDArray[Any], *, first_row: int = 0, isa: str = "") -> Floats:
    """Largest magnitude of each row, f32. Raises NonFinite.value."""
    from cortiq.native import core

    found = np.empty(len(values), np.float32)
    core.row_absmax(_source(values), found, first_row, isa)
    return found


def decode(layout: Layout, payload: Payload, shape: Shape, *, isa: str = "") -> Floats:
    """``layout.decode`` by the native core."""
    layout.validate(payload, shape)
    return decode_rows(layout, payload, shape, 0, rows_and_cols(shape)[0], isa=isa).reshape(tuple(shape))


def decode_rows(layout: Layout, payload: Payload, shape: Shape, first: int, last: int, *, isa: str = "") -> Floats:
    """Rows first to last (exclusive) of ``rows_and_cols(shape)`` as f32, reading only what they need.

    The payload must be validated. Raises UsageError for one of another size and for rows it does not have.
    """
    from cortiq.native import core

    rows, cols = rows_and_cols(shape)
    values = np.empty((max(last - first, 0), cols), np.float32)
    core.decode(layout.id, as_bytes(layout.canonical(payload, shape)), rows, values, first, isa)
    return values


def _source(values: NDArray[Any]) -> NDArray[Any]:
    """``values`` as the core takes them: bf16, which has no buffer format, as u16."""
    name = values.dtype.name
    if name not in ("float32", "float16", "bfloat16", "uint16") or not values.flags.c_contiguous or values.ndim != 2:
        expected = "a C-contiguous matrix of f32, f16 or bf16"
        found = f"{name} {values.shape}"
        raise UsageError("these weights cannot be encoded", code="element_type", expected=expected, found=found)
    return values.view(np.uint16) if name == "bfloat16" else values
