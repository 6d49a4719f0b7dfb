from __future__ import annotations

import numpy as np
import pytest

from builders.weights import heavy_tailed
from cortiq.layouts import LAYOUTS, layout, native
from cortiq.layouts.q1 import sum_in_order

Q1, Q1P = layout("q1"), layout("q1p")


def test_a_tile_by_hand() -> None:
    values = np.full((1, 32), -0.5, np.float32)
    values[0, [0, 9, 31]] = 0.5
    tile = Q1.encode(values)
    assert tile == np.float16(0.5).tobytes() + bytes([0x01, 0x02, 0x00, 0x80])
    np.testing.assert_array_equal(Q1.decode(tile, (1, 32)), values)


def test_zero_is_positive_and_has_the_smallest_scale() -> None:
    for zero in (0.0, -0.0):
        assert Q1.encode(np.full((1, 32), zero, np.float32)) == b"\x00\x04" + b"\xff" * 4


def test_diffusion_keeps_the_sums_of_a_row() -> None:
    values = heavy_tailed(4, 256) + np.float32(0.01)
    decoded = {kind.name: kind.decode(kind.encode(values), values.shape) for kind in (Q1, Q1P)}

    def drift(name: str) -> float:
        return float(np.abs(np.cumsum(decoded[name] - values, axis=1)).max())

    assert drift("q1p") < 0.2 * drift("q1")
    np.testing.assert_array_equal(np.abs(decoded["q1p"]), np.abs(decoded["q1"]))


def test_diffusion_starts_anew_in_every_row() -> None:
    values = heavy_tailed(5, 96)
    alone = b"".join(Q1P.encode(values[row : row + 1]) for row in range(5))
    assert Q1P.encode(values) == alone


@pytest.mark.parametrize("isa", ["scalar", ""])
def test_native_diffusion_gives_the_same_bytes(isa: str) -> None:
    pytest.importorskip("cortiq._native", reason="the native core is not built")
    for values in (heavy_tailed(9, 4128), heavy_tailed(3, 64, scale=1e-6)):
        assert native.encode(Q1P, values, isa=isa) == Q1P.encode(values)


def test_q1p_is_no_dtype() -> None:
    assert Q1P.id == Q1.id
    assert LAYOUTS[Q1.id].name == "q1"


def test_sums_are_taken_in_order() -> None:
    values = np.array([[2.0**24, 1, 1, 1, 1]], np.float32)
    assert sum_in_order(values)[0] == 2.0**24
