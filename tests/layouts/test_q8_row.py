from __future__ import annotations

import numpy as np

from cortiq.layouts import layout

Q8 = layout("q8_row")


def test_rows_by_hand() -> None:
    values = np.array([[127, -127, 0.5, 1.5], [0, 0, 0, 0], [-254, 1, 3, 5]], np.float32)
    payload = Q8.encode(values)
    quants = np.frombuffer(payload, np.int8, 12).reshape(3, 4)
    np.testing.assert_array_equal(quants, [[127, -127, 0, 2], [0] * 4, [-127, 0, 2, 2]])
    np.testing.assert_array_equal(np.frombuffer(payload, np.float16, 3, 12), [1, 2.0**-14, 2])


def test_minus_128_has_its_value() -> None:
    payload = np.int8(-128).tobytes() + np.float16(0.5).tobytes()
    assert Q8.decode(payload, (1, 1))[0, 0] == -64
