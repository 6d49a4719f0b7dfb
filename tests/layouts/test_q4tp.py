from __future__ import annotations

import struct

import numpy as np
import pytest

from builders.weights import appendix_a, heavy_tailed
from cortiq.container.hash64 import hash64
from cortiq.errors import Parse
from cortiq.layouts import layout

Q4TP = layout("q4tp")


def test_vector_of_a_formula() -> None:
    payload = Q4TP.encode(appendix_a(), encoder="plain")
    assert (len(payload), hash64(payload)) == (152, 0x406FC1BBB4010CF7)
    assert payload[:16].hex() == "42a7fc63b82e75ca4196eb52a81d74c9"
    params = [struct.unpack_from("<HH", payload, 128 + 4 * row) for row in range(4)]
    assert params == [(0xC42A, 0x01E8), (0xC435, 0x139D), (0xC731, 0x0EF8), (0xC42A, 0x01E8)]


def test_a_row_by_hand() -> None:
    nibbles = bytes([0xF0, 0x98]) + b"\x88" * 14 + bytes([0x07]) + b"\x88" * 15
    payload = nibbles + struct.pack("<ee", -1.0, 0.5) + bytes([0b01000010, 0])
    decoded = Q4TP.decode(payload, (1, 64))
    ratio = np.float32(2**0.5)
    np.testing.assert_array_equal(decoded[0, :4], np.float32([-8, 7, 0, 1]) * (np.float32(0.5) * ratio * ratio))
    np.testing.assert_array_equal(decoded[0, 32:34], np.float32([-1, -8]) * (np.float32(0.5) * ratio * ratio))


def test_groups_of_zeros_do_not_stretch_the_ladder() -> None:
    values = heavy_tailed(3, 128)
    values[:, 32:64] = 0
    values[2] = 0
    decoded = Q4TP.decode(Q4TP.encode(values), values.shape)
    assert not decoded[:, 32:64].any()
    assert not decoded[2].any()
    alone = values[:, [*range(32), *range(64, 128)]]
    expected = Q4TP.decode(Q4TP.encode(alone), alone.shape)
    np.testing.assert_array_equal(decoded[:2, :32], expected[:2, :32])


def test_best_is_better_than_plain() -> None:
    values = heavy_tailed(64, 512)

    def error(encoder: str) -> float:
        decoded = Q4TP.decode(Q4TP.encode(values, encoder=encoder), values.shape)  # type: ignore[arg-type]
        return float(((decoded.astype(np.float64) - values) ** 2).sum())

    assert error("best") < error("plain")


def test_falling_ladders_are_read() -> None:
    payload = bytearray(Q4TP.encode(heavy_tailed(2, 64)))
    struct.pack_into("<e", payload, 64 + 2, -0.5)
    assert np.isfinite(Q4TP.decode(payload, (2, 64))).all()


@pytest.mark.parametrize(
    ("at", "value"),
    [*((0, v) for v in (np.nan, np.inf, -np.inf, 128.0)), (2, 16.0)],
)
def test_ladders_that_are_not_finite_are_refused(at: int, value: float) -> None:
    payload = bytearray(Q4TP.encode(heavy_tailed(2, 64)))
    Q4TP.validate(payload, (2, 64))
    struct.pack_into("<e", payload, 64 + 4 + at, value)
    with pytest.raises(Parse, match="row 1") as raised:
        Q4TP.validate(payload, (2, 64))
    assert raised.value.kind == "Parse.q4tp_ladder"


@pytest.mark.parametrize("name", ["q4tp", "q2tp"])
@pytest.mark.parametrize(("groups", "used"), [(1, 5), (2, 2), (3, 7), (7, 3), (8, 8), (11, 7)])
def test_bits_behind_the_last_code(name: str, groups: int, used: int) -> None:
    kind, shape = layout(name), (4, 32 * groups)
    clean = kind.encode(heavy_tailed(*shape))
    stride = -(-5 * groups // 8)
    for row in range(4):
        for bit in range(8):
            payload = bytearray(clean)
            payload[len(clean) - stride * (3 - row) - 1] |= 1 << bit
            found = list(kind.oddities(payload, shape))
            assert [error.kind for error in found] == [f"Parse.{name}_padding"] * (bit >= used)
            assert all(f"row {row}" in str(error) for error in found)
