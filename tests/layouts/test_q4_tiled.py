from __future__ import annotations

import numpy as np
import pytest

from builders.weights import heavy_tailed, weighted_errors
from cortiq.layouts import layout

Q4 = layout("q4_tiled")


def test_a_tile_by_hand() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = [7.0, -7.0, 3.4, -0.6]
    tile = Q4.encode(values, encoder="plain")
    assert tile == b"\x00\x3c" + bytes([0x1F, 0x7B]) + b"\x88" * 14


def test_negative_scales_are_read() -> None:
    tile = np.float16(-0.5).tobytes() + bytes([0xF0]) + b"\x88" * 15
    np.testing.assert_array_equal(Q4.decode(tile, (1, 32))[0, :3], [4.0, -3.5, 0.0])


def test_a_zero_group_has_the_smallest_normal_scale() -> None:
    for encoder in ("plain", "best"):
        assert Q4.encode(np.zeros((1, 32), np.float32), encoder=encoder) == b"\x00\x04" + b"\x88" * 16  # type: ignore[arg-type]


@pytest.mark.parametrize("sign", [1, -1])
def test_best_uses_all_sixteen_levels(sign: int) -> None:
    values = (np.arange(-16, 16) % 16 - 8).astype(np.float32)[None] * np.float32(0.25 * sign)
    np.testing.assert_array_equal(Q4.decode(Q4.encode(values), (1, 32)), values)
    assert not np.array_equal(Q4.decode(Q4.encode(values, encoder="plain"), (1, 32)), values)


def test_best_comes_within_a_hair_of_an_exhaustive_search() -> None:
    groups = heavy_tailed(300, 32)
    extreme = groups[np.arange(300), np.abs(groups).argmax(axis=1)]
    smallest = np.full(300, np.inf)
    for level in np.linspace(3, 14, 800):
        for sign in (1, -1):
            scale = (sign * extreme / level).astype(np.float16).astype(np.float64)[:, None]
            decoded = np.clip(np.rint(groups / scale), -8, 7) * scale
            smallest = np.minimum(smallest, weighted_errors(decoded, groups))
    plain = weighted_errors(Q4.decode(Q4.encode(groups, encoder="plain"), groups.shape), groups)
    best = weighted_errors(Q4.decode(Q4.encode(groups), groups.shape), groups)
    assert best.sum() <= 1.002 * smallest.sum()
    assert best.sum() <= 0.75 * plain.sum()


def test_weights_below_the_smallest_normal_scale_keep_their_shape() -> None:
    values = heavy_tailed(8, 32, scale=2e-5)
    error = Q4.decode(Q4.encode(values), values.shape) - values
    assert np.sqrt((error**2).sum() / (values**2).sum()) < 0.15
