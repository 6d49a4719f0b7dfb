"""q4tp (id 15): the nibbles of q4_tiled, the scale of a group one of 32 rungs of its row (SPEC 3.2).

    bytes   [nibbles : rows * G * 16][params : rows * 4][codes : rows * ceil(5 G / 8)], G = cols / 32
            byte k of a group holds weight 2k in its low and weight 2k + 1 in its high nibble; for params and codes
            see ``ladder``
    value   w = (nibble - 8) * t[code], t the ladder of the row
    size    rows * (16 G + 4 + ceil(5 G / 8))
    shapes  2-D, not empty, cols a multiple of 32
    encode  lo = f16(lowest log2 of the row's plain scales max(f16(absmax / 7), 2^-14)), step = the first half from
            f16((highest - lo) / 31) on whose 31 steps reach the highest; groups of zeros do not count and get code 0
            plain: of the rung nearest to the plain scale, two below and one above, that of smallest squared error
            best: of all rungs that of smallest squared error
            nibble = clamp(rint(w * (1 / t[code])), -8, 7) + 8

lo and step are rounded first, the code is chosen on the rounded ladder, the nibbles against the rung.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cortiq.errors import Parse
from cortiq.layouts import ladder
from cortiq.layouts.base import Bytes, Encoder, Floats, Payload, RecordLayout, as_bytes
from cortiq.layouts.bits import F16_OVERFLOW, require_magnitude
from cortiq.layouts.sizes import GROUP, Shape, ceil_div, checked, grouped_matrix

GROUP_NBYTES = 16
SPAN = 31  # steps from the first rung to the last
_LEVELS = np.float32(7)


class Q4TP(RecordLayout):
    """4.17 bits a weight in long rows."""

    id = 15
    name = "q4tp"
    _group_nbytes = GROUP_NBYTES
    _span = SPAN

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        return checked(rows * sum(self.row_nbytes(groups * GROUP)))

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        groups = cols // GROUP
        return self._group_nbytes * groups, ladder.PARAMS_NBYTES, ceil_div(5 * groups, 8)

    def validate(self, payload: Payload, shape: Shape) -> None:
        """As ``Layout.validate``, and Parse.q4tp_ladder for a ladder that is not finite."""
        super().validate(payload, shape)
        params = self.planes(shape)[1]
        ladder.check_params(as_bytes(payload)[params.offset :][: params.nbytes], self._span)

    def oddities(self, payload: Payload, shape: Shape) -> Iterator[Parse]:
        """Parse.q4tp_padding (of q2tp: q2tp_padding) for a row with bits that are not 0 behind its last code."""
        codes = self.planes(shape)[2]
        row = ladder.first_padded(as_bytes(payload)[codes.offset :].reshape(shape[0], -1), shape[1] // GROUP)
        if row is not None:
            message = f"bits that belong to no code are not 0, first in row {row}"
            yield Parse(message, code=f"{self.name}_padding")

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW * _LEVELS, "the f16 scale of a q4tp group")
        groups = values.reshape(len(values), -1, GROUP)
        logs, dead = ladder.log_scales(groups, _LEVELS)
        params = ladder.fit_params(*ladder.ends(logs, dead), SPAN)
        nearest = ladder.nearest_codes(logs, params, SPAN).reshape(-1)
        rungs = ladder.ladders(params).repeat(logs.shape[1], axis=0)
        columns = ladder.as_columns(groups)
        candidates = ladder.around(nearest, 2, 1) if encoder == "plain" else ladder.every(nearest, 0)
        codes = ladder.search_codes(lambda scales: _errors(columns, scales), rungs, nearest, candidates, 0)
        codes = np.where(dead.reshape(-1), 0, codes)
        scales = np.take_along_axis(rungs, codes[:, None], axis=1)
        ratios = groups.reshape(-1, GROUP) * (np.float32(1) / scales)
        nibbles = (np.rint(np.clip(ratios, -8, 7)) + 8).astype(np.uint8)
        packed = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).reshape(len(values), -1)
        return packed, params, ladder.pack_codes(codes.reshape(dead.shape))

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        pairs, params, codes = planes
        nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(len(pairs), -1, GROUP)
        scales = ladder.group_scales(params, codes, cols // GROUP)[:, :, None]
        return ((nibbles.astype(np.float32) - np.float32(8)) * scales).reshape(-1, cols)


def _errors(columns: Floats, scales: Floats) -> Floats:
    """Squared error of each group at one scale: f32 sums in the order of the weights. ``columns`` f32 [32, n]."""
    inverse = np.float32(1) / scales
    total = np.zeros_like(scales)
    for column in columns:
        code = np.rint(np.clip(column * inverse, np.float32(-8), np.float32(7)))
        rest = column - code * scales
        total += rest * rest
    return total
