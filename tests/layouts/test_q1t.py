from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import golden_tensors, heavy_tailed, put
from cortiq.errors import Bounds, Parse
from cortiq.layouts import layout

Q1T = layout("q1t")
ROWS, COLS = 72, 96
POINTERS = 9 * ROWS * COLS // 32
GOLDEN = next(t for t in golden_tensors() if t.dtype == Q1T.id and t.shape == (ROWS, COLS))


def outlier(column: int, row: int = 0, value: float = 1.0) -> Callable[[bytes], bytes]:
    """The golden payload, which has no outliers, given one."""

    def changed(payload: bytes) -> bytes:
        pointers = (np.arange(ROWS + 1) > row).astype("<u4")
        return payload[:POINTERS] + pointers.tobytes() + struct.pack("<He", column, value)

    return changed


CASES = [
    ("first pointer", put(POINTERS, "<I", 1), Bounds, "q1t_row_ptr"),
    ("decreasing", put(POINTERS + 4, "<I", 0xFFFFFFFF), Bounds, "q1t_row_ptr"),
    ("slack", lambda p: p + b"\0", Bounds, "q1t_row_ptr"),
    ("column", outlier(COLS), Bounds, "q1t_col"),
    *((f"code {c}", put(2, "B", c), Parse, "q1t_code") for c in (243, 255)),
]


@pytest.mark.parametrize(("what", "change", "error", "code"), CASES, ids=[case[0] for case in CASES])
def test_refused(what: str, change: Callable[[bytes], bytes], error: type[Exception], code: str) -> None:
    Q1T.validate(GOLDEN.payload, GOLDEN.shape)
    with pytest.raises(error, match=code):
        Q1T.validate(change(GOLDEN.payload), GOLDEN.shape)


def test_an_outlier_replaces_the_tile() -> None:
    before = Q1T.decode(GOLDEN.payload, GOLDEN.shape)
    after = Q1T.decode(outlier(COLS - 1, ROWS - 1, -3.0)(GOLDEN.payload), GOLDEN.shape)
    assert after[-1, -1] == -3.0
    assert (before != after).sum() == 1


def test_a_tile_by_hand() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, [0, 1, 6, 31]] = [0.5, -0.5, 0.5, -0.5]
    payload = Q1T.encode(values)
    assert payload[:9] == np.float16(0.5).tobytes() + bytes([1 + 3 * 2, 3, 0, 0, 0, 0, 3 * 2])
    np.testing.assert_array_equal(Q1T.decode(payload, (1, 32)), values)


def test_near_zero_weights_become_zero() -> None:
    values = heavy_tailed(20, 256)
    decoded = Q1T.decode(Q1T.encode(values), values.shape)
    assert 0.3 < (decoded == 0).mean() < 0.6
    ternary = ((decoded - values) ** 2).sum()
    binary = ((layout("q1").decode(layout("q1").encode(values), values.shape) - values) ** 2).sum()
    assert ternary < 0.75 * binary


def test_the_scales_of_a_row_are_corrected_together() -> None:
    values = heavy_tailed(6, 128)
    decoded = Q1T.decode(Q1T.encode(values), values.shape).astype(np.float64)
    factor = (decoded * values).sum(axis=1) / (decoded**2).sum(axis=1)
    np.testing.assert_allclose(factor, 1, atol=2e-3)


def test_digits_that_belong_to_no_weight() -> None:
    payload = bytearray(GOLDEN.payload)
    assert not list(Q1T.oddities(payload, GOLDEN.shape))
    last = 9 * (5 * COLS // 32 + 2) - 1  # of the second group of row 5
    for code, odd in ((8, False), (9, True), (242, True)):
        payload[last] = code
        Q1T.validate(payload, GOLDEN.shape)
        found = list(Q1T.oddities(payload, GOLDEN.shape))
        assert [error.kind for error in found] == ["Parse.q1t_padding"] * odd
        assert all("row 5" in str(error) and error.found == code for error in found)
