"""q2tp (id 16): 2 bits a weight on the ladder of q4tp, whose first rung is zero. In published files, beyond SPEC 3.1.

bytes   [weights : rows * G * 8][params : rows * 4][codes : rows * ceil(5 G / 8)], G = cols / 32
        byte k of a group holds weights 4k to 4k + 3, the first in the lowest two bits
value   w = (c - 1.5) * t[code] with t[0] = 0 and t[c] the rung c - 1 of the ladder (``ladder``)
size    rows * (8 G + 4 + ceil(5 G / 8))
shapes  2-D, not empty, cols a multiple of 32
encode  lo as in q4tp with absmax / 1.5; step = the first half from f16((top - lo) / 30) on whose 30 steps reach
        the top; tops are lo + f * (highest - lo), f = 1, 0.9, 0.8, 0.7, and the first of smallest squared error
        over the row stays, each group at the best of the nearest rung, two below and two above
        plain: then the code as in q4tp, from 1; best: the best of the rungs 1 to 31
        c = clamp(rint(w * (1 / t[code]) + 1.5), 0, 3); groups of zeros have code 0 and c = 2
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cortiq.layouts import ladder
from cortiq.layouts.base import Bytes, Encoder, Floats
from cortiq.layouts.bits import F16_OVERFLOW, f32_from_f16, require_magnitude
from cortiq.layouts.q4tp import Q4TP
from cortiq.layouts.sizes import GROUP

GROUP_NBYTES = 8
SPAN = 30
TOPS: Floats = np.array([1.0, 0.9, 0.8, 0.7], np.float32)
_LEVELS = np.float32(1.5)
_SHIFTS: Bytes = np.array([0, 2, 4, 6], np.uint8)


class Q2TP(Q4TP):
    """2.17 bits a weight in long rows."""

    id = 16
    name = "q2tp"
    _group_nbytes = GROUP_NBYTES
    _span = SPAN

    def encode_rows(self, values: Floats, encoder: Encoder) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW * _LEVELS, "the f16 scale of a q2tp group")
        groups = values.reshape(len(values), -1, GROUP)
        logs, dead = ladder.log_scales(groups, _LEVELS)
        columns = ladder.as_columns(groups)
        params = _best_params(columns, logs, dead)
        nearest, rungs = _nearest(logs, params), _rungs(params, logs.shape[1])
        candidates = ladder.around(nearest, 2, 1) if encoder == "plain" else ladder.every(nearest, 1)
        codes = ladder.search_codes(lambda scales: _errors(columns, scales), rungs, nearest, candidates, 1)
        codes = np.where(dead.reshape(-1), 0, codes)
        scales = np.take_along_axis(rungs, codes[:, None], axis=1)
        scales[scales == 0] = 1  # a group at rung 0 is all zeros
        quads = _nearest_levels(groups.reshape(-1, GROUP) * (np.float32(1) / scales)).astype(np.uint8)
        packed: Bytes = np.bitwise_or.reduce(quads.reshape(len(values), -1, 4) << _SHIFTS, axis=2)
        return packed, params, ladder.pack_codes(codes.reshape(dead.shape))

    def decode_rows(self, planes: list[Bytes], cols: int) -> Floats:
        packed, params, codes = planes
        quads = (packed[:, :, None] >> _SHIFTS & np.uint8(3)).reshape(len(packed), -1, GROUP)
        rungs = _rungs(params, 1)
        scales = np.take_along_axis(rungs, ladder.unpack_codes(codes, cols // GROUP), axis=1)[:, :, None]
        return ((quads.astype(np.float32) - _LEVELS) * scales).reshape(-1, cols)


def _best_params(columns: Floats, logs: Floats, dead: NDArray[np.bool_]) -> Bytes:
    """Params of the top with the smallest squared error of each row, summed in f32 in the order of the groups."""
    low, high = ladder.ends(logs, dead)
    stored = f32_from_f16(ladder.fit_params(low, high, SPAN).view(np.uint16))[:, 0]
    best, least = ladder.fit_params(low, high, SPAN), np.full(len(logs), np.inf, np.float32)
    for factor in TOPS:
        top = np.where(high > stored, stored + (high - stored) * factor, high)
        params = ladder.fit_params(low, top, SPAN)
        candidates = ladder.around(_nearest(logs, params), 2, 2)
        rungs = _rungs(params, logs.shape[1])
        found = ladder.smallest_errors(lambda scales: _errors(columns, scales), rungs, candidates, 1)
        total = np.zeros(len(logs), np.float32)
        for error in np.where(dead, np.float32(0), found.reshape(logs.shape)).T:
            total += error
        better = total < least
        best, least = np.where(better[:, None], params, best), np.where(better, total, least)
    return best


def _nearest(logs: Floats, params: Bytes) -> ladder.Codes:
    return 1 + ladder.nearest_codes(logs, params, SPAN).reshape(-1)


def _rungs(params: Bytes, repeats: int) -> Floats:
    """Zero and the first 31 rungs of each row's ladder, each row ``repeats`` times."""
    rungs = np.roll(ladder.ladders(params), 1, axis=1)
    rungs[:, 0] = 0
    return rungs.repeat(repeats, axis=0)


def _nearest_levels(ratios: Floats) -> Floats:
    levels: Floats = np.rint(np.clip(ratios + _LEVELS, np.float32(0), np.float32(3)))
    return levels


def _errors(columns: Floats, scales: Floats) -> Floats:
    """Squared error of each group at one scale: f32 sums in the order of the weights. ``columns`` f32 [32, n]."""
    inverse = np.float32(1) / scales
    total = np.zeros_like(scales)
    for column in columns:
        rest = column - (_nearest_levels(column * inverse) - _LEVELS) * scales
        total += rest * rest
    return total
