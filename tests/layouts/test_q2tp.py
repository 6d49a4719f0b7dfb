from __future__ import annotations

import struct

import numpy as np
import pytest

from builders.weights import appendix_a, heavy_tailed
from cortiq.container.hash64 import hash64
from cortiq.errors import Parse
from cortiq.layouts import layout

Q2TP = layout("q2tp")


def test_vector_of_a_formula() -> None:
    payload = Q2TP.encode(appendix_a(), encoder="plain")
    assert (len(payload), hash64(payload)) == (88, 0x566C032A9FDB79B5)
    assert payload[:16].hex() == "944e3aa5944e39a5934ee9a4537ae994"


def test_a_row_by_hand() -> None:
    weights = bytes([0b11100100]) + b"\xaa" * 7 + bytes([0b00000001]) + b"\xaa" * 7
    payload = weights + struct.pack("<ee", -1.0, 0.5) + bytes([0b00000001, 0])  # codes 1 and 0
    decoded = Q2TP.decode(payload, (1, 64))
    np.testing.assert_array_equal(decoded[0, :4], np.float32([-0.75, -0.25, 0.25, 0.75]))
    assert not decoded[0, 32:].any()
    assert np.signbit(decoded[0, 32:34]).all()


def test_groups_of_zeros() -> None:
    payload = Q2TP.encode(np.zeros((2, 64), np.float32))
    assert payload == b"\xaa" * 32 + struct.pack("<eH", -14.0, 1) * 2 + bytes(4)
    decoded = Q2TP.decode(payload, (2, 64))
    assert not decoded.any()
    assert not np.signbit(decoded).any()


def test_best_is_better_than_plain() -> None:
    values = heavy_tailed(64, 512)

    def error(encoder: str) -> float:
        decoded = Q2TP.decode(Q2TP.encode(values, encoder=encoder), values.shape)  # type: ignore[arg-type]
        return float(((decoded.astype(np.float64) - values) ** 2).sum())

    assert error("best") < error("plain")


def test_ladders_that_are_not_finite_are_refused() -> None:
    payload = bytearray(Q2TP.encode(heavy_tailed(2, 64)))
    struct.pack_into("<e", payload, 32, np.nan)
    with pytest.raises(Parse, match="row 0") as raised:
        Q2TP.validate(payload, (2, 64))
    assert raised.value.kind == "Parse.q4tp_ladder"
