"""q1 (id 12): one bit with one f16 scale per 32 weights (SPEC 3.2). For models trained to one bit.

    bytes   per group of 32 a tile of 6: [f16 scale][4 bytes of signs], bit k of byte j is weight 8 j + k
    value   w = scale where the bit is 1, else -scale: there is no zero
    size    6 * rows * cols / 32
    shapes  2-D, not empty, cols a multiple of 32
    encode  scale = max(f16(mean |w|), 2^-14), bit = w >= 0
            q1p: the same scales; along a row v = w + carry, bit = v >= 0, carry = v - (bit ? scale : -scale)

The mean is the f32 sum of the 32 magnitudes, added up in order, divided by 32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.layouts.base import Bytes, Encoder, Floats, RecordLayout
from cortiq.layouts.bits import F16_MAX, F16_OVERFLOW, F16_TINY, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.sizes import GROUP, Shape, checked, grouped_matrix

TILE_NBYTES = 6
Bits = NDArray[np.bool_]


class Q1(RecordLayout):
    """``best`` and ``plain`` are the same."""

    id = 12
    name = "q1"

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return checked(TILE_NBYTES * rows * groups)

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (TILE_NBYTES * (cols // GROUP),)

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        scales = self.scales(values)
        return (tiles(scales, values >= 0),)

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        return untile(planes[0]).reshape(-1, cols)

    def scales(self, values: Floats) -> Floats:
        """The scale of every group, f32 [rows, groups]. Raises NonFinite.range."""
        require_magnitude(values, F16_OVERFLOW, f"the f16 scale of a {self.name} group")
        groups = np.abs(values).reshape(len(values), -1, GROUP)
        return mean_scale(sum_in_order(groups), np.float32(GROUP))


class Q1P(Q1):
    """q1 whose signs carry the rounding error along the row: another encoder, the same dtype."""

    name = "q1p"

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        scales = self.scales(values)
        return (tiles(scales, diffused(values, scales, np.zeros(values.shape, np.bool_))),)

    def native_encoder(self, encoder: Encoder) -> str:
        return "diffuse"


def sum_in_order(values: Floats) -> Floats:
    """f32 sums over the last axis, one addition after the other."""
    return np.add.accumulate(values, axis=-1)[..., -1]


def mean_scale(sums: Floats, count: Floats | np.float32) -> Floats:
    """``sums`` / ``count`` as an f16 scale: at least 2^-14, and finite."""
    mean = np.minimum(sums / count, F16_MAX)
    return np.maximum(f32_from_f16(f16_from_f32(mean)), F16_TINY)


def diffused(values: Floats, scales: Floats, apart: Bits) -> Bits:
    """Signs by error diffusion along each row. A weight set ``apart`` has its own sign and leaves the carry alone."""
    signs = values >= 0
    carry = np.zeros(len(values), np.float32)
    for k in range(values.shape[1]):
        wanted, scale = values[:, k] + carry, scales[:, k // GROUP]
        sign = wanted >= 0
        signs[:, k] = np.where(apart[:, k], signs[:, k], sign)
        carry = np.where(apart[:, k], carry, wanted - np.where(sign, scale, -scale))
    return signs


def tiles(scales: Floats, signs: Bits) -> Bytes:
    """f32 scales [rows, groups] and signs [rows, cols] as u8 [rows, row_nbytes]."""
    data = np.empty((scales.size, TILE_NBYTES), np.uint8)
    data[:, :2] = f16_from_f32(scales).reshape(-1).view(np.uint8).reshape(-1, 2)
    data[:, 2:] = np.packbits(signs.reshape(-1, GROUP), axis=1, bitorder="little")
    return data.reshape(len(scales), -1)


def untile(data: Bytes) -> Floats:
    """The reverse: f32 [groups, 32]."""
    pairs = data.reshape(-1, TILE_NBYTES)
    scales = f32_from_f16(np.ascontiguousarray(pairs[:, :2]).view(np.uint16))
    return np.where(np.unpackbits(pairs[:, 2:], axis=1, bitorder="little") == 1, scales, -scales)
