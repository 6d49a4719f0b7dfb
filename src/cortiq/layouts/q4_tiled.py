"""q4_tiled (id 11): 4 bits with one f16 scale per 32 weights, interleaved (SPEC 3.2).

    bytes   per group of 32 a tile of 18: [f16 scale][16 bytes of nibbles]
            byte k holds weight 2k in its low and weight 2k + 1 in its high nibble
    value   w = (nibble - 8) * scale; the scale may be negative
    size    18 * rows * cols / 32
    shapes  2-D, not empty, cols a multiple of 32
    encode  plain: scale = max(f16(absmax / 7), 2^-14), nibble = clamp(rint(w / scale), -8, 7) + 8
            best: see ``best_scales``

The scale is rounded to f16 first and the nibbles are chosen against the rounded one.
"""

from __future__ import annotations

import numpy as np

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.bits import F16_OVERFLOW, F16_TINY, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.q4_search import best_scales
from cortiq.layouts.sizes import GROUP, Shape, checked, grouped_matrix

TILE_NBYTES = 18
LEVELS = np.float32(7)


class Q4Tiled(RecordLayout):
    """``best`` searches the scale of each group for the smallest weighted error; ``plain`` takes SPEC's formula."""

    id = 11
    name = "q4_tiled"

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return checked(TILE_NBYTES * rows * groups)

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (TILE_NBYTES * (cols // GROUP),)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW * LEVELS, "the f16 scale of a q4_tiled group")
        scales, nibbles = encode_groups(values.reshape(-1, GROUP), encoder)
        return (np.concatenate([scales, nibbles], axis=1).reshape(len(values), -1),)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        tiles = planes[0].reshape(-1, TILE_NBYTES)
        return decode_groups(tiles[:, :2], tiles[:, 2:]).reshape(-1, cols)


def encode_groups(groups: Floats, encoder: Encoder) -> tuple[Bytes, Bytes]:
    """f32 [n, 32] to f16 scales as u8 [n, 2] and nibbles u8 [n, 16]."""
    scales = plain_scales(groups)
    if encoder == "best":
        scales = best_scales(groups, scales)
        ratios = groups * (np.float32(1) / scales)[:, None]
    else:
        ratios = groups / scales[:, None]
    nibbles = (np.rint(np.clip(ratios, -8, 7)) + 8).astype(np.uint8)
    return scales.astype(np.float16).view(np.uint8).reshape(-1, 2), nibbles[:, 0::2] | nibbles[:, 1::2] << 4


def decode_groups(scales: Bytes, pairs: Bytes) -> Floats:
    """The reverse: f32 [n, 32]."""
    nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1, GROUP)
    return (nibbles.astype(np.float32) - np.float32(8)) * f32_from_f16(np.ascontiguousarray(scales).view(np.uint16))


def plain_scales(groups: Floats) -> Floats:
    """SPEC's scale of each group of [groups, 32], already rounded to f16."""
    absmax = np.abs(groups).max(axis=1)
    return np.maximum(f32_from_f16(f16_from_f32(absmax / LEVELS)), F16_TINY)
