"""q1s (id 13): q1 and a list of outliers kept as f16 (SPEC 3.2).

    bytes   [q1 tiles : rows * cols / 32][u32 count][(u32 flat index, f16 value) : count]
    value   that of q1; an outlier is its f16 value, the last one where an index is repeated
    size    6 * rows * cols / 32 + 4 + 6 count
    shapes  2-D, not empty, cols a multiple of 32, at most 2^32 weights
    encode  outliers: every |w| >= t, where t is the k-th largest |w| and k = one weight in a hundred, rounded half up
            scale = max(f16(mean |w|), 2^-14) over the others of a group, signs of the others as in q1p;
            the sign of an outlier is its own and carries nothing on

SPEC leaves the order of the outliers open. Known writers have them ascending, and the native core needs it so: the
outliers of a row are then found without a look at the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Bounds, Parse
from cortiq.layouts.base import Bytes, Encoder, Floats, Payload, Reader, RowLayout, Survey, as_bytes, widen
from cortiq.layouts.bits import F16_OVERFLOW, f16_from_f32, f32_from_f16, require_magnitude
from cortiq.layouts.q1 import TILE_NBYTES, diffused, mean_scale, sum_in_order, tiles, untile
from cortiq.layouts.sizes import GROUP, Shape, checked, grouped_matrix

KEEP = 0.01
_U32_MAX = 2**32 - 1
_SURVEY_WEIGHTS = 1 << 20
_ENTRY = np.dtype([("index", "<u4"), ("value", "<u2")])
_SURVEY = np.dtype([("threshold", "<f4"), ("count", "<u4")])


class Q1S(RowLayout):
    """``best`` and ``plain`` are the same. The survey is the threshold (f32) and the number of outliers (u32)."""

    id = 13
    name = "q1s"
    exact_size = False
    surveyed = True

    def payload_nbytes(self, shape: Shape) -> int:
        rows, groups = grouped_matrix(shape, self.name)
        if rows * groups * GROUP > _U32_MAX + 1:
            raise Parse("32-bit outlier indices cannot reach all weights", code="q1s_too_large", found=tuple(shape))
        return checked(TILE_NBYTES * rows * groups + 4)

    def encoded_nbytes(self, shape: Shape, survey: Survey) -> int:
        return self.payload_nbytes(shape) + _ENTRY.itemsize * int(survey["count"][0])

    def validate(self, payload: Payload, shape: Shape) -> None:
        super().validate(payload, shape)
        data, head = as_bytes(payload), self.payload_nbytes(shape)
        count = int.from_bytes(data[head - 4 : head].tobytes(), "little")
        if head + _ENTRY.itemsize * count != data.size:
            raise Bounds("outliers", code="q1s_count", expected=head + _ENTRY.itemsize * count, found=data.size)
        indices = data[head:].view(_ENTRY)["index"].astype(np.int64)
        if count and int(indices.max()) >= shape[0] * shape[1]:
            raise Bounds("an outlier outside the tensor", code="q1s_index", found=int(indices.max()))

    def canonical(self, payload: Payload, shape: Shape) -> Payload:
        data, head = as_bytes(payload), self.payload_nbytes(shape)
        if (data.size - head) % _ENTRY.itemsize:
            return payload
        entries = data[head:].view(_ENTRY)
        if _ascending(entries):
            return payload
        order = np.argsort(entries["index"], kind="stable")
        return np.concatenate([data[:head], entries[order].view(np.uint8)])

    def oddities(self, payload: Payload, shape: Shape) -> Iterator[Parse]:
        """Parse.q1s_order for outliers that are not in ascending order, or of one weight twice."""
        if not _ascending(as_bytes(payload)[self.payload_nbytes(shape) :].view(_ENTRY)):
            yield Parse("the outliers are not in the order other readers may expect", code="q1s_order")

    def row_nbytes(self, cols: int) -> tuple[int, ...]:
        return (TILE_NBYTES * (cols // GROUP),)

    def survey(self, read: Reader, rows: int, cols: int) -> Survey:
        """Two passes that count the upper, then the lower halves of the magnitudes' bits: blocks in memory, no more."""
        kept = int(rows * cols * KEEP + 0.5)
        if kept == 0:
            return np.array([(np.inf, 0)], _SURVEY)
        step = max(_SURVEY_WEIGHTS // cols, 1)

        def histogram(choose: Callable[[NDArray[np.uint32]], NDArray[np.uint32]]) -> NDArray[Any]:
            total = np.zeros(1 << 16, np.int64)
            for first in range(0, rows, step):
                magnitudes = np.abs(widen(read(first, min(first + step, rows)))).view(np.uint32)
                total += np.bincount(choose(magnitudes).reshape(-1), minlength=1 << 16)
            return total

        rank = rows * cols - kept
        high, below = _bin_of(histogram(lambda bits: bits >> np.uint32(16)), rank)
        lower = histogram(lambda bits: bits[bits >> np.uint32(16) == high] & np.uint32(0xFFFF))
        low, more = _bin_of(lower, rank - below)
        count = rows * cols - below - more
        if count > _U32_MAX:
            raise Parse("more outliers than can be counted", code="q1s_too_large", found=count)
        threshold = np.array([high << 16 | low], np.uint32).view(np.float32)
        return np.array([(threshold[0], count)], _SURVEY)

    def encode_block(self, values: Floats, encoder: Encoder, survey: Survey) -> tuple[Bytes, ...]:
        require_magnitude(values, F16_OVERFLOW, "an f16 outlier of q1s")
        apart = np.abs(values) >= survey["threshold"][0]
        groups = np.where(apart, 0, np.abs(values)).reshape(len(values), -1, GROUP)
        others = GROUP - apart.reshape(groups.shape).sum(axis=2)
        scales = mean_scale(sum_in_order(groups), np.maximum(others, 1).astype(np.float32))
        return (tiles(scales, diffused(values, scales, apart)),)

    def tail_head(self, rows: int, cols: int, survey: Survey) -> Bytes:
        return np.ascontiguousarray(survey["count"]).view(np.uint8)

    def tail_rows(self, values: NDArray[Any], survey: Survey, first_row: int) -> Bytes:
        flat = widen(values).reshape(-1)
        chosen = np.flatnonzero(np.abs(flat) >= survey["threshold"][0])
        entries = np.empty(chosen.size, _ENTRY)
        entries["index"] = chosen + first_row * values.shape[1]
        entries["value"] = f16_from_f32(flat[chosen])
        return entries.view(np.uint8)

    def decode_payload(self, data: Bytes, rows: int, cols: int) -> Floats:
        head = self.payload_nbytes((rows, cols))
        values = untile(data[: head - 4]).reshape(-1)
        entries = data[head:].view(_ENTRY)
        values[entries["index"]] = f32_from_f16(np.ascontiguousarray(entries["value"]))
        return values.reshape(rows, cols)


def _ascending(entries: NDArray[Any]) -> bool:
    """Whether every outlier has a larger index than the one before it."""
    indices = entries["index"]
    return bool((indices[:-1] < indices[1:]).all())


def _bin_of(counts: NDArray[Any], rank: int) -> tuple[int, int]:
    """The bin that holds the element of this rank (from 0), and how many elements are in the bins before it."""
    ends = np.cumsum(counts)
    found = int(np.searchsorted(ends, rank, side="right"))
    return found, int(ends[found] - counts[found])
