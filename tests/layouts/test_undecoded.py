"""Content rules of the layouts without codec: each refusal by a payload that breaks just that rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import GoldenTensor, golden_tensors, put
from cortiq.errors import Bounds, Parse
from cortiq.layouts import layout

GOLDEN = {layout(t.dtype).name: t for t in golden_tensors() if not layout(t.dtype).has_codec}
ROWS, COLS, GROUPS = 72, 96, 3
VBIT_OFFSETS = ROWS + 2 * ROWS * GROUPS
Q4TP_LADDER = 16 * ROWS * GROUPS

CASES = [
    *(("vbit", f"width {w}", put(5, "B", w), Parse, "vbit_bits") for w in (0, 1, 2, 7, 9, 255)),
    ("vbit", "a wider row", lambda p: put(5, "B", 8 if p[5] != 8 else 3)(p), Bounds, "vbit_size"),
    ("vbit", "surplus", lambda p: p + b"\0", Bounds, "vbit_size"),
    ("vbit_ro", "first offset", put(VBIT_OFFSETS, "<I", 1), Bounds, "vbit_offsets"),
    ("vbit_ro", "second offset", put(VBIT_OFFSETS + 4, "<I", 0xFFFFFFFF), Bounds, "vbit_offsets"),
    ("vbit_ro", "last offset", put(VBIT_OFFSETS + 4 * ROWS, "<I", 0), Bounds, "vbit_offsets"),
    *(("q4tp", f"low {v}", put(Q4TP_LADDER, "<e", v), Parse, "q4tp_ladder") for v in (np.nan, np.inf, -np.inf, 128.0)),
    ("q4tp", "step", put(Q4TP_LADDER + 2, "<e", 16.0), Parse, "q4tp_ladder"),
    ("q2tp", "low", put(Q4TP_LADDER // 2, "<e", np.nan), Parse, "q4tp_ladder"),
]


@pytest.mark.parametrize(("name", "what", "change", "error", "code"), CASES, ids=lambda case: str(case)[:16])
def test_refused(name: str, what: str, change: Callable[[bytes], bytes], error: type[Exception], code: str) -> None:
    tensor: GoldenTensor = GOLDEN[name]
    assert tensor.shape == (ROWS, COLS)
    layout(name).validate(tensor.payload, tensor.shape)
    with pytest.raises(error, match=code):
        layout(name).validate(change(tensor.payload), tensor.shape)


def test_legal_oddities() -> None:
    falling = put(Q4TP_LADDER + 2, "<e", -0.5)(GOLDEN["q4tp"].payload)
    layout("q4tp").validate(falling, (ROWS, COLS))
