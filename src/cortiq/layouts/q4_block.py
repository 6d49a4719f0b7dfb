"""q4_block (id 4): 4 bits with one f16 scale per 32 weights of the flattened tensor (SPEC 3.2).

    bytes   [16 bytes of nibbles : g][f16 scale : g], g = ceil(n / 32) groups of the flattened tensor, the last one
            padded with zeros; byte k of a group holds weight 2k in its low and weight 2k + 1 in its high nibble
    value   w = (nibble - 8) * scale; the scale may be negative
    size    18 g
    shapes  any but scalars and empty tensors: a row need not end with a group
    encode  that of q4_tiled

A block of rows can be encoded by itself when its first row begins with a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import numpy as np

from cortiq.errors import Parse
from cortiq.layouts.base import Bytes, Encoder, Floats, Layout, Payload, Survey, as_bytes
from cortiq.layouts.bits import F16_OVERFLOW, require_magnitude
from cortiq.layouts.q4_tiled import LEVELS, decode_groups, encode_groups
from cortiq.layouts.sizes import GROUP, Shape, ceil_div, checked, flat

_NIBBLES_NBYTES, _SCALE_NBYTES = 16, 2
_ZERO = 8  # the nibble of the value 0


class Q4Block(Layout):
    """``best`` searches the scale of each group for the smallest weighted error; ``plain`` takes SPEC's formula."""

    id = 4
    name = "q4_block"

    def payload_nbytes(self, shape: Shape) -> int:
        return checked((_NIBBLES_NBYTES + _SCALE_NBYTES) * ceil_div(flat(shape, self.name), GROUP))

    def oddities(self, payload: Payload, shape: Shape) -> Iterator[Parse]:
        """Parse.q4_block_padding for weights that are not 0 behind the last one of the tensor."""
        count = flat(shape, self.name)
        used, nbytes = count % GROUP, _NIBBLES_NBYTES * ceil_div(count, GROUP)
        pairs = as_bytes(payload)[nbytes - _NIBBLES_NBYTES : nbytes]
        nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1)[used or GROUP :]
        wrong = nibbles[(nibbles != _ZERO) & (nibbles != 0)]
        if wrong.size:
            message = "nibbles behind the last weight are not those of 0"
            yield Parse(message, code="q4_block_padding", expected=f"{_ZERO} or no bits", found=int(wrong[0]))

    def plane_nbytes(self, rows: int, cols: int) -> tuple[int, ...]:
        groups = ceil_div(rows * cols, GROUP)
        return _NIBBLES_NBYTES * groups, _SCALE_NBYTES * groups

    def block_rows(self, cols: int) -> int:
        return GROUP // gcd(GROUP, cols)

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW * LEVELS, "the f16 scale of a q4_block group")
        groups = np.zeros((ceil_div(values.size, GROUP), GROUP), np.float32)
        groups.reshape(-1)[: values.size] = values.reshape(-1)
        scales, nibbles = encode_groups(groups, encoder)
        return nibbles, scales

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        nibbles, scales = (data[p.offset : p.offset + p.nbytes] for p in self.planes((rows, cols)))
        groups = decode_groups(scales.reshape(-1, _SCALE_NBYTES), nibbles.reshape(-1, _NIBBLES_NBYTES))
        return groups.reshape(-1)[: rows * cols].reshape(rows, cols)
