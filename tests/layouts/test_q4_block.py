from __future__ import annotations

import numpy as np
import pytest

from builders.weights import heavy_tailed
from cortiq.errors import Parse
from cortiq.layouts import ENCODERS, Encoder, layout

Q4 = layout("q4_block")


def test_groups_go_over_the_ends_of_rows() -> None:
    values = np.zeros((2, 20), np.float32)
    values[0, :2] = [7.0, -7.0]
    values[1, 12:14] = [14.0, -2.0]  # weights 32 and 33
    payload = Q4.encode(values, encoder="plain")
    assert payload[:32] == b"\x1f" + b"\x88" * 15 + b"\x7f" + b"\x88" * 15
    assert payload[32:] == np.array([1.0, 2.0], "<f2").tobytes()
    np.testing.assert_array_equal(Q4.decode(payload, (2, 20)), values)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_whole_groups_have_the_weights_of_q4_tiled(encoder: Encoder) -> None:
    values = heavy_tailed(7, 96)
    tiled = layout("q4_tiled")
    np.testing.assert_array_equal(
        Q4.decode(Q4.encode(values, encoder=encoder), values.shape),
        tiled.decode(tiled.encode(values, encoder=encoder), values.shape),
    )


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 33), (1, 1, 2, 2, 3, 5)], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    values = heavy_tailed(1, int(np.prod(shape))).reshape(shape)
    payload = Q4.encode(values)
    assert len(payload) == 18 * -(-values.size // 32)
    assert Q4.decode(payload, shape).shape == shape
    with pytest.raises(Parse, match="ndim"):
        Q4.encode(np.float32(1).reshape(()))


@pytest.mark.parametrize(("cols", "rows"), [(32, 1), (96, 1), (72, 4), (33, 32), (1, 32), (100, 8)])
def test_blocks_begin_with_a_group(cols: int, rows: int) -> None:
    assert Q4.block_rows(cols) == rows


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63])
def test_nibbles_behind_the_last_weight(count: int) -> None:
    clean = Q4.encode(heavy_tailed(1, count).reshape(count))
    used, last = (count - 1) % 32 + 1, (count - 1) // 32 * 16
    for k in range(32):
        payload = bytearray(clean)
        low = k % 2 == 0
        for nibble, zero in ((0, True), (8, True), (9, False), (15, False)):
            byte = payload[last + k // 2]
            payload[last + k // 2] = byte & 0xF0 | nibble if low else byte & 0x0F | nibble << 4
            found = list(Q4.oddities(payload, (count,)))
            assert [error.kind for error in found] == ["Parse.q4_block_padding"] * (k >= used and not zero)
            assert all(error.found == nibble for error in found)
