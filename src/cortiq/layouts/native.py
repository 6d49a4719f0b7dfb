"""The codecs of the native core: the bytes of the NumPy definitions, at the speed of memory.

A tensor larger than memory is encoded in blocks of rows; the GIL is released, so several threads may encode at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import UsageError
from cortiq.layouts.base import Bytes, Encoder, Floats, Layout, Payload, as_bytes
from cortiq.layouts.sizes import GROUP, Shape, rows_and_cols
from cortiq.layouts.vbit import Vbit, amplitudes, row_ends, widths_of_rows


def encode_rows(
    layout: Layout, values: NDArray[Any], *, encoder: Encoder = "best", first_row: int = 0, isa: str = ""
) -> tuple[Bytes, ...]:
    """Encode a block of rows: [rows, cols] to one u8 array [rows, row_nbytes] per plane of the payload.

    ``values`` is f32, f16, bf16 (``ml_dtypes.bfloat16``) or u16 (the bits of bf16), C-contiguous. ``first_row`` is
    where the block begins in the tensor, for error messages. ``isa`` picks an instruction set; "" the best.
    Raises NonFinite, UnsupportedFeature for a dtype without codec, UsageError, NativeMissing.
    """
    from cortiq.native import core

    source = _source(values)
    rows, cols = values.shape
    planes = tuple(np.empty((rows, nbytes), np.uint8) for nbytes in layout.row_nbytes(cols))
    core.encode(layout.id, encoder, source, planes, first_row, isa)
    return planes


def decode_rows(layout: Layout, planes: Iterable[Bytes], rows: int, cols: int, *, isa: str = "") -> Floats:
    """The reverse: one contiguous buffer per plane to f32 [rows, cols]. The planes must be validated."""
    from cortiq.native import core

    values = np.empty((rows, cols), np.float32)
    core.decode(layout.id, tuple(as_bytes(plane) for plane in planes), values, isa)
    return values


def encode(layout: Layout, values: NDArray[Any], *, encoder: Encoder = "best", isa: str = "") -> bytes:
    """``layout.encode`` by the native core. A u8 layout is refused: its bytes need no encoder."""
    layout.payload_nbytes(values.shape)
    matrix = np.ascontiguousarray(values).reshape(rows_and_cols(values.shape))
    if isinstance(layout, Vbit):
        widths = widths_of_rows(amplitudes(row_absmax(matrix, isa=isa)))
        scales = vbit_scales(matrix, widths, isa=isa)
        table = layout.row_table(widths, scales.shape[1] // 2)
        return b"".join(part.tobytes() for part in (widths, scales, table, vbit_pack(matrix, widths, scales, isa=isa)))
    return b"".join(plane.tobytes() for plane in encode_rows(layout, matrix, encoder=encoder, isa=isa))


def decode(layout: Layout, payload: Payload, shape: Shape, *, isa: str = "") -> Floats:
    """``layout.decode`` by the native core."""
    layout.validate(payload, shape)
    if isinstance(layout, Vbit):
        return vbit_decode(*layout.parts(payload, shape), isa=isa)
    data = as_bytes(payload)
    rows, cols = rows_and_cols(shape)
    planes = [data[p.offset : p.offset + rows * p.row_nbytes] for p in layout.planes(shape)]
    return decode_rows(layout, planes, rows, cols, isa=isa).reshape(tuple(shape))


def row_absmax(values: NDArray[Any], *, first_row: int = 0, isa: str = "") -> Floats:
    """Largest magnitude of each row, f32. Raises NonFinite.value."""
    from cortiq.native import core

    found = np.empty(len(values), np.float32)
    core.row_absmax(_source(values), found, first_row, isa)
    return found


def vbit_scales(values: NDArray[Any], widths: Bytes, *, first_row: int = 0, isa: str = "") -> Bytes:
    """The scales of a block of rows of a vbit tensor, u8 [rows, 2 G]. Raises as ``encode_rows``."""
    from cortiq.native import core

    scales = np.empty((len(values), values.shape[1] // GROUP * 2), np.uint8)
    core.vbit_scales(_source(values), widths, scales, first_row, isa)
    return scales


def vbit_pack(values: NDArray[Any], widths: Bytes, scales: Bytes, *, isa: str = "") -> Bytes:
    """The packed rows of a block, one after the other, at given widths and scales."""
    from cortiq.native import core

    packed = np.empty(int(row_ends(widths, values.shape[1] // GROUP)[-1]), np.uint8)
    core.vbit_pack(_source(values), widths, scales, packed, isa)
    return packed


def vbit_decode(widths: Bytes, scales: Bytes, packed: Bytes, *, isa: str = "") -> Floats:
    """A block of rows as f32 [rows, cols] from its widths, scales u8 [rows, 2 G] and packed rows."""
    from cortiq.native import core

    values = np.empty((len(widths), scales.shape[1] // 2 * GROUP), np.float32)
    core.vbit_decode(widths, scales, packed, values, isa)
    return values


def _source(values: NDArray[Any]) -> NDArray[Any]:
    """``values`` as the core takes them: bf16, which has no buffer format, as u16."""
    name = values.dtype.name
    if name not in ("float32", "float16", "bfloat16", "uint16") or not values.flags.c_contiguous or values.ndim != 2:
        expected = "a C-contiguous matrix of f32, f16 or bf16"
        found = f"{name} {values.shape}"
        raise UsageError("these weights cannot be encoded", code="element_type", expected=expected, found=found)
    return values.view(np.uint16) if name == "bfloat16" else values
