from __future__ import annotations

import numpy as np
import pytest

from builders.weights import heavy_tailed, weighted_errors
from cortiq.layouts import layout

Q8 = layout("q8_row")


def test_rows_by_hand() -> None:
    values = np.array([[127, -127, 0.5, 1.5], [0, 0, 0, 0], [-254, 1, 3, 5]], np.float32)
    payload = Q8.encode(values, encoder="plain")
    quants = np.frombuffer(payload, np.int8, 12).reshape(3, 4)
    np.testing.assert_array_equal(quants, [[127, -127, 0, 2], [0] * 4, [-127, 0, 2, 2]])
    np.testing.assert_array_equal(np.frombuffer(payload, np.float16, 3, 12), [1, 2.0**-14, 2])


def test_minus_128_has_its_value() -> None:
    payload = np.int8(-128).tobytes() + np.float16(0.5).tobytes()
    assert Q8.decode(payload, (1, 1))[0, 0] == -64


@pytest.mark.parametrize("sign", [1, -1])
def test_best_uses_all_levels(sign: int) -> None:
    values = np.arange(-128, 128).astype(np.float32)[None] * np.float32(0.25 * sign)
    np.testing.assert_array_equal(Q8.decode(Q8.encode(values), values.shape), values)
    assert not np.array_equal(Q8.decode(Q8.encode(values, encoder="plain"), values.shape), values)


def test_best_comes_close_to_an_exhaustive_search() -> None:
    rows = heavy_tailed(60, 576)
    extreme = rows[np.arange(60), np.abs(rows).argmax(axis=1)]
    smallest = np.full(60, np.inf)
    for level in np.linspace(90, 132, 200):
        for sign in (1, -1):
            scale = (sign * extreme / level).astype(np.float16).astype(np.float64)[:, None]
            decoded = np.clip(np.rint(rows / scale), -128, 127) * scale
            smallest = np.minimum(smallest, weighted_errors(decoded, rows, 576))
    best = weighted_errors(Q8.decode(Q8.encode(rows), rows.shape), rows, 576)
    plain = weighted_errors(Q8.decode(Q8.encode(rows, encoder="plain"), rows.shape), rows, 576)
    assert best.sum() <= 1.02 * smallest.sum()
    assert best.sum() <= 0.97 * plain.sum()
