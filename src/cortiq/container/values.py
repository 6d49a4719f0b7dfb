"""The values of a tensor in blocks of rows, and the check for those that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from cortiq.container.file import File
from cortiq.container.finding import Finding
from cortiq.container.tensor import Tensor
from cortiq.errors import Bounds, NativeMissing, NonFinite, Parse
from cortiq.layouts import layout
from cortiq.layouts import native as native_codecs
from cortiq.layouts.sizes import rows_and_cols

_BLOCK_WEIGHTS = 1 << 20
_U8 = 6

Floats = NDArray[np.float32]


def row_blocks(tensor: Tensor) -> Iterator[Floats]:
    """The decoded tensor as f32 [rows, cols] in blocks of rows, in order; equal shapes give equal blocks.

    The native core decodes where it is built. Raises what decoding raises: Parse and Bounds for content that is not
    valid.
    """
    kind = layout(tensor.entry.dtype)
    tensor.validate()
    rows, cols = rows_and_cols(tensor.shape)
    step = max(_BLOCK_WEIGHTS // max(cols, 1), 1)
    try:
        for first in range(0, rows, step):
            yield native_codecs.decode_rows(kind, tensor.raw, tensor.shape, first, min(first + step, rows))
    except NativeMissing:  # the definitions decode a tensor as a whole
        whole = kind.decode(tensor.raw, tensor.shape).reshape(rows, cols)
        yield from (whole[first : first + step] for first in range(0, rows, step))


def check_values(file: File) -> Iterator[Finding]:
    """Weights that are NaN or infinite, by their scale or of themselves: a warning for each tensor that has some.

    Opening and running do not judge values. A scale of -0 or a subnormal one is none of these: the weights are numbers,
    and the best encoders write subnormal scales for small groups.
    """
    for name in file:
        tensor = file[name]
        if tensor.entry.dtype == _U8 or prod(tensor.shape) == 0:
            continue
        try:
            count, first = _non_finite(tensor)
        except (Bounds, Parse):
            continue  # content that is not valid is reported with the payload
        if count:
            message = f"{count} weights are not finite, the first is {first}"
            yield Finding(NonFinite(message, code="value", tensor=name, section="data", found=count), problem=False)


def _non_finite(tensor: Tensor) -> tuple[int, str]:
    count, first, row = 0, "", 0
    for block in row_blocks(tensor):
        bad = ~np.isfinite(block)
        found = int(np.count_nonzero(bad))
        if found and not count:
            at, col = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            first = f"[{row + at}, {col}]"
        count += found
        row += len(block)
    return count, first
