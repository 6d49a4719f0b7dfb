"""Content rules of the layouts without codec: each refusal by a payload that breaks just that rule."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import GoldenTensor, golden_tensors
from cortiq.errors import Bounds, Parse
from cortiq.layouts import layout

GOLDEN = {layout(t.dtype).name: t for t in golden_tensors() if not layout(t.dtype).has_codec}
ROWS, COLS, GROUPS = 72, 96, 3
Q1S_COUNT = 6 * ROWS * GROUPS
Q1T_POINTERS = 9 * ROWS * GROUPS


def put(at: int, form: str, value: float) -> Callable[[bytes], bytes]:
    """A payload with one number replaced."""

    def changed(payload: bytes) -> bytes:
        data = bytearray(payload)
        struct.pack_into(form, data, at, value)
        return bytes(data)

    return changed


def one_outlier(form: str, *entry: float) -> Callable[[bytes], bytes]:
    """A payload without outliers given one."""

    def changed(payload: bytes) -> bytes:
        data = bytearray(payload[: Q1S_COUNT + 4])
        struct.pack_into("<I", data, Q1S_COUNT, 1)
        return bytes(data) + struct.pack(form, *entry)

    return changed


def one_q1t_outlier(column: int) -> Callable[[bytes], bytes]:
    def changed(payload: bytes) -> bytes:
        pointers = np.ones(ROWS + 1, "<u4")
        pointers[0] = 0
        return payload[:Q1T_POINTERS] + pointers.tobytes() + struct.pack("<He", column, 1.0)

    return changed


CASES = [
    ("q1s", "count beyond", put(Q1S_COUNT, "<I", 0xFFFFFFFF), Bounds, "q1s_count"),
    ("q1s", "slack", lambda p: p + b"\0", Bounds, "q1s_count"),
    ("q1s", "index", one_outlier("<Ie", ROWS * COLS, 1.0), Bounds, "q1s_index"),
    ("q1t", "first pointer", put(Q1T_POINTERS, "<I", 1), Bounds, "q1t_row_ptr"),
    ("q1t", "decreasing", put(Q1T_POINTERS + 4, "<I", 0xFFFFFFFF), Bounds, "q1t_row_ptr"),
    ("q1t", "slack", lambda p: p + b"\0", Bounds, "q1t_row_ptr"),
    ("q1t", "column", one_q1t_outlier(COLS), Bounds, "q1t_col"),
    *(("q1t", f"code {c}", put(2, "B", c), Parse, "q1t_code") for c in (243, 255)),
]


@pytest.mark.parametrize(("name", "what", "change", "error", "code"), CASES, ids=lambda case: str(case)[:16])
def test_refused(name: str, what: str, change: Callable[[bytes], bytes], error: type[Exception], code: str) -> None:
    tensor: GoldenTensor = GOLDEN[name]
    assert tensor.shape == (ROWS, COLS)
    layout(name).validate(tensor.payload, tensor.shape)
    with pytest.raises(error, match=code):
        layout(name).validate(change(tensor.payload), tensor.shape)


def test_legal_oddities() -> None:
    layout("q1s").validate(one_outlier("<Ie", ROWS * COLS - 1, 1.0)(GOLDEN["q1s"].payload), (ROWS, COLS))
    layout("q1t").validate(one_q1t_outlier(COLS - 1)(GOLDEN["q1t"].payload), (ROWS, COLS))
