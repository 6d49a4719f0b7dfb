"""Embedding rows straight from the payload."""

from __future__ import annotations

import numpy as np
import pytest

from cortiq import _native
from cortiq.layouts import layout
from cortiq.ops import embed


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_row", "q4_tiled"])
def test_matches_reference(name: str) -> None:
    codec = layout(name)
    values = np.random.default_rng(5).standard_normal((9, 96)).astype(np.float32)
    payload = codec.encode(values)
    tokens = np.array([8, 0, 3, 3], np.int32)
    expected = embed.reference(codec.decode(payload, values.shape), tokens)
    for isa in _native.supported_isas():
        np.testing.assert_array_equal(embed.native(payload, values.shape, codec.id, tokens, isa=isa), expected)


def test_scale_is_f32() -> None:
    weight = np.array([[0.1, 0.2]], np.float32)
    scaled = embed.reference(weight, np.array([0], np.int32), scale=64**0.5)
    np.testing.assert_array_equal(scaled, weight * np.float32(8))
