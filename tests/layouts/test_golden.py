"""The encoders and decoders against bytes the upstream implementation wrote and values it decoded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import GoldenTensor, golden_tensors
from cortiq.container.hash64 import hash64
from cortiq.errors import NonFinite
from cortiq.layouts import Layout, layout, native
from cortiq.layouts.bits import f16_from_f32

GOLDEN = golden_tensors()
WITH_CODEC = [tensor for tensor in GOLDEN if layout(tensor.dtype).has_codec]


def ids(tensor: GoldenTensor) -> str:
    return f"{tensor.target}-{tensor.name}"


def writer(tensor: GoldenTensor) -> Layout:
    """The layout, or the way of encoding it, that the target means."""
    return layout("q1p" if tensor.target == "q1p" and tensor.dtype == layout("q1").id else tensor.dtype)


@pytest.fixture(params=["numpy", "native"])
def encode(request: pytest.FixtureRequest) -> Callable[[GoldenTensor], bytes]:
    if request.param == "numpy":
        return lambda tensor: writer(tensor).encode(tensor.source, encoder="plain")
    pytest.importorskip("cortiq._native", reason="the native core is not built")
    return lambda tensor: native.encode(writer(tensor), tensor.source, encoder="plain")


@pytest.mark.parametrize("tensor", [t for t in WITH_CODEC if t.name != "extra.f16_edges"], ids=ids)
def test_plain_bytes_are_upstreams(tensor: GoldenTensor, encode: Callable[[GoldenTensor], bytes]) -> None:
    assert encode(tensor) == tensor.payload


def test_f16_edges_round_as_upstream_does(encode: Callable[[GoldenTensor], bytes]) -> None:
    tensor = next(t for t in WITH_CODEC if t.name == "extra.f16_edges")
    stored = np.frombuffer(tensor.payload, np.uint16)
    np.testing.assert_array_equal(f16_from_f32(tensor.source), stored)
    fits = np.abs(tensor.source) < 65520
    assert not fits.all()
    part = GoldenTensor("f16", "", 1, (int(fits.sum()),), b"", 0, None, np.ascontiguousarray(tensor.source[fits]))
    assert encode(part) == stored[fits].tobytes()
    with pytest.raises(NonFinite, match="range"):
        encode(tensor)


@pytest.mark.parametrize("tensor", WITH_CODEC, ids=ids)
def test_decoded_values_are_upstreams(tensor: GoldenTensor) -> None:
    assert tensor.decoded_hash is not None
    decoded = layout(tensor.dtype).decode(tensor.payload, tensor.shape)
    assert hash64(decoded.tobytes()) == tensor.decoded_hash


@pytest.mark.parametrize("tensor", GOLDEN, ids=ids)
def test_upstream_payloads_are_valid(tensor: GoldenTensor) -> None:
    assert hash64(tensor.payload) == tensor.hash
    layout(tensor.dtype).validate(tensor.payload, tensor.shape)


def test_every_dtype_but_four_has_an_upstream_payload() -> None:
    missing = {"f32", "bf16", "u8"}  # upstream's converter does not write them
    from cortiq.layouts import LAYOUTS

    assert {layout(tensor.dtype).name for tensor in GOLDEN} == {entry.name for entry in LAYOUTS.values()} - missing


@pytest.mark.parametrize(
    ("name", "length", "digest", "start"),
    [
        ("f16", 512, 0x17BE1A514B6A23FB, "90b580b280ab802d6033003640b4c0af"),
        ("q8_row", 264, 0xEE016AE733259354, "8fbeed1c4b7aaad908376695c4f32251"),
        ("q4_tiled", 144, 0xE5F915C1F5BF0C86, "252b42a7fc63b82e75ca4196eb52a81d"),
    ],
)
def test_vectors_of_a_formula(name: str, length: int, digest: int, start: str) -> None:
    index = np.arange(256)
    values = ((((37 * index + 11) % 201) - 100) / 256).astype(np.float32).reshape(4, 64)
    values[2] *= np.float32(0.125)
    values[3, 32:] = 0
    assert hash64(values.tobytes()) == 0xF2DB242F94F7F596
    payload = layout(name).encode(values, encoder="plain")
    assert (len(payload), hash64(payload), payload[:16].hex()) == (length, digest, start)
