"""What every layout must do, and that the native codecs give the bytes of the NumPy definitions."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from builders.weights import awkward, heavy_tailed, weighted_errors
from cortiq.errors import Bounds, NonFinite, Parse, UnsupportedFeature, UsageError
from cortiq.layouts import ENCODERS, LAYOUTS, Encoder, Layout, layout, native
from cortiq.native import core

WEIGHTS = [entry for entry in LAYOUTS.values() if entry.name != "u8"]
FLOATS = [layout(name) for name in ("f32", "f16", "bf16")]
QUANTIZED = [entry for entry in WEIGHTS if entry not in FLOATS]
LADDERS = [layout(name) for name in ("q4tp", "q2tp")]
ELEMENTS = (np.float32, np.float16, ml_dtypes.bfloat16)


def ids(entry: object) -> str:
    return entry.name if isinstance(entry, Layout) else str(entry)


def needs_groups(entry: Layout) -> bool:
    try:
        entry.payload_nbytes((2, 33))
    except Parse:
        return True
    return False


def isas() -> list[str]:
    try:
        from cortiq import _native
    except ImportError:
        return []
    return list(_native.supported_isas())


@pytest.fixture(params=["scalar", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest) -> str:
    if not isas():
        pytest.skip("the native core is not built")
    if request.param not in isas():
        pytest.skip(f"this processor has no {request.param}")
    return str(request.param)


def whole_survey(entry: Layout, values: NDArray[Any]) -> NDArray[Any]:
    return entry.survey(lambda first, last: values[first:last], *values.shape)


def encode_block(
    entry: Layout, block: NDArray[Any], values: NDArray[Any], first_row: int, isa: str
) -> tuple[NDArray[np.uint8], ...]:
    """Rows of ``values`` as the native core encodes them."""
    return native.encode_rows(entry, block, survey=whole_survey(entry, values), first_row=first_row, isa=isa)


def scales(values: NDArray[np.float32], entry: Layout) -> NDArray[np.float32]:
    """The plain scale that applies to each weight, for the quantized layouts."""
    field = np.ones(values.shape[1], np.float32)
    if entry.name == "q8_2f":
        field = np.maximum(np.sqrt((values.astype(np.float64) ** 2).mean(axis=0)), 2.0**-14).astype(np.float32)
    groups = values / field if entry.name.startswith("q8") else values.reshape(-1, 32)
    levels = {"q4": 7, "q8": 127, "vb": 3}[entry.name[:2]]
    scale = np.maximum(np.abs(groups).max(axis=1, keepdims=True) / levels * (1 + 2.0**-10), 2.0**-14)
    return np.broadcast_to(scale, groups.shape).reshape(values.shape) * field


def few_levels(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bound for one and two bits a weight: the weight itself and the largest scale its group may have."""
    largest = np.abs(values.reshape(-1, 32)).max(axis=1, keepdims=True)
    scale = np.broadcast_to(np.maximum(2 * largest, 2.0**-14), (values.size // 32, 32))
    return np.abs(values) + scale.reshape(values.shape) * np.float32(1 + 2.0**-10)


def tolerance(values: NDArray[np.float32], entry: Layout) -> NDArray[Any]:
    """Largest error of the plain encoder."""
    match entry.name:
        case "f32":
            return np.zeros_like(values)
        case "f16":
            return np.maximum(np.abs(values) * 2.0**-11, 2.0**-25)
        case "bf16":
            return np.maximum(np.abs(values) * 2.0**-8, 2.0**-134)
        case "q1" | "q1s" | "q1t" | "q2tp" | "q4tp":
            return few_levels(values)
        case _:
            return scales(values, entry) * 0.501


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("values", [heavy_tailed(17, 96), awkward()], ids=["ordinary", "awkward"])
def test_plain_round_trip_stays_within_half_a_step(entry: Layout, values: NDArray[np.float32]) -> None:
    decoded = entry.decode(entry.encode(values, encoder="plain"), values.shape)
    assert decoded.dtype == np.float32
    assert decoded.shape == values.shape
    assert (np.abs(decoded - values) <= tolerance(values, entry)).all()


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("values", [heavy_tailed(64, 96), awkward()], ids=["ordinary", "awkward"])
def test_best_is_never_worse_than_plain(entry: Layout, values: NDArray[np.float32]) -> None:
    """In the error it makes small: weighted for the layouts that search the scale of a group."""

    def error(decoded: NDArray[Any]) -> NDArray[Any]:
        if entry.name in ("q4_tiled", "q4_block"):
            return weighted_errors(decoded, values)
        return np.asarray(((decoded.astype(np.float64) - values) ** 2).reshape(-1, 32).sum(axis=1))

    plain, best = (error(entry.decode(entry.encode(values, encoder=e), values.shape)) for e in ("plain", "best"))
    assert (best <= plain + 1e-6 * error(np.zeros_like(values))).all()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("entry", [entry for entry in WEIGHTS if not entry.surveyed and entry not in LADDERS], ids=ids)
def test_encoding_what_was_decoded_changes_nothing(entry: Layout, encoder: Encoder) -> None:
    once = entry.decode(entry.encode(heavy_tailed(9, 64), encoder=encoder), (9, 64))
    twice = entry.decode(entry.encode(once, encoder=encoder), (9, 64))
    np.testing.assert_allclose(twice, once, rtol=2e-3, atol=0)


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("shape", [(1, 32), (5, 96), (3, 4096 + 64), (2, 33), (7, 1), (3, 8193)], ids=str)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_native_bytes_equal_the_definition(entry: Layout, shape: tuple[int, int], encoder: Encoder, isa: str) -> None:
    if shape[1] % 32 and needs_groups(entry):
        with pytest.raises(Parse, match="in_mod_32"):
            native.encode(entry, heavy_tailed(*shape), isa=isa)
        return
    for scale in (1e-8, 1e-5, 0.02, 300.0):
        values = heavy_tailed(*shape, scale=scale)
        for element in ELEMENTS:
            source = values.clip(-6e4, 6e4).astype(element)
            payload = entry.encode(source, encoder=encoder)
            assert native.encode(entry, source, encoder=encoder, isa=isa) == payload
            decoded = native.decode(entry, payload, shape, isa=isa)
            assert decoded.tobytes() == entry.decode(payload, shape).tobytes()


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_native_bytes_equal_the_definition_for_awkward_rows(entry: Layout, encoder: Encoder, isa: str) -> None:
    payload = entry.encode(awkward(), encoder=encoder)
    assert native.encode(entry, awkward(), encoder=encoder, isa=isa) == payload
    assert native.decode(entry, payload, awkward().shape, isa=isa).tobytes() == (
        entry.decode(payload, awkward().shape).tobytes()
    )


@pytest.mark.parametrize("entry", [layout("f16"), layout("bf16")], ids=ids)
def test_every_16_bit_pattern_decodes_alike(entry: Layout, isa: str) -> None:
    payload = np.arange(2**16, dtype=np.uint16).tobytes()
    expected = entry.decode(payload, (256, 256))
    decoded = native.decode(entry, payload, (256, 256), isa=isa)
    np.testing.assert_array_equal(decoded, expected)
    finite = np.isfinite(expected)
    assert decoded[finite].tobytes() == expected[finite].tobytes()


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
def test_weights_that_are_no_numbers_are_refused(entry: Layout, bad: float) -> None:
    values = heavy_tailed(6, 64)
    values[4, 33] = values[5, 0] = bad
    with pytest.raises(NonFinite, match=r"weight \[4, 33\] is not finite") as raised:
        entry.encode(values)
    assert raised.value.kind == "NonFinite.value"


@pytest.mark.parametrize("entry", [entry for entry in WEIGHTS if not entry.long_tail], ids=ids)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
def test_native_refuses_the_same_weight(entry: Layout, bad: float, isa: str) -> None:
    values = heavy_tailed(6, 4128)
    values[1, 5] = 3e38  # out of range for most layouts: the definition reports what is not finite first
    values[4, 4100] = values[5, 0] = bad
    for element in (np.float32, ml_dtypes.bfloat16):
        with pytest.raises(NonFinite, match=r"weight \[14, 4100\] is not finite") as raised:
            encode_block(entry, values.astype(element), values, 10, isa)
        assert raised.value.kind == "NonFinite.value"


RANGES = [
    *((name, 65520.0) for name in ("f16", "q8_2f", "q1", "q1s", "q1t")),
    ("bf16", 3.3961775e38),
    ("q8_row", 127 * 65520.0),
    ("q4_tiled", 7 * 65520.0),
    ("q4_block", 7 * 65520.0),
    ("q4tp", 7 * 65520.0),
    ("q2tp", 1.5 * 65520.0),
]


@pytest.mark.parametrize(("name", "limit"), RANGES)
def test_weights_too_large_for_the_layout_are_refused(name: str, limit: float) -> None:
    entry, values = layout(name), heavy_tailed(3, 64)
    values[1, 40] = -np.nextafter(np.float32(limit), np.float32(0))
    assert np.isfinite(entry.decode(entry.encode(values), values.shape)).all()
    values[1, 40] = -np.float32(limit)
    with pytest.raises(NonFinite, match=rf"weight \[1, 40\] is too large for .*{name}") as raised:
        entry.encode(values)
    assert raised.value.kind == "NonFinite.range"


@pytest.mark.parametrize(("name", "limit"), RANGES)
def test_native_draws_the_same_line(name: str, limit: float, isa: str) -> None:
    entry, values = layout(name), heavy_tailed(3, 64)
    values[1, 40] = -np.nextafter(np.float32(limit), np.float32(0))
    for encoder in ENCODERS:
        assert native.encode(entry, values, encoder=encoder, isa=isa) == entry.encode(values, encoder=encoder)
    values[1, 40] = -np.float32(limit)
    with pytest.raises(NonFinite, match=rf"weight \[1, 40\] is too large for .*{name}") as raised:
        native.encode(entry, values, isa=isa)
    assert raised.value.kind == "NonFinite.range"


@pytest.mark.parametrize("entry", FLOATS, ids=ids)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 128), (3, 0), (2, 3, 5)], ids=str)
def test_float_layouts_take_any_shape(entry: Layout, shape: tuple[int, ...]) -> None:
    values = heavy_tailed(1, int(np.prod(shape, dtype=int))).reshape(shape)
    payload = entry.encode(values)
    assert len(payload) == entry.payload_nbytes(shape)
    assert entry.decode(payload, shape).shape == shape


@pytest.mark.parametrize("entry", FLOATS, ids=ids)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 128), (3, 0), (2, 3, 5)], ids=str)
def test_native_float_layouts_take_any_shape(entry: Layout, shape: tuple[int, ...], isa: str) -> None:
    values = heavy_tailed(1, int(np.prod(shape, dtype=int))).reshape(shape)
    payload = native.encode(entry, values, isa=isa)
    assert payload == entry.encode(values)
    assert native.decode(entry, payload, shape, isa=isa).tobytes() == entry.decode(payload, shape).tobytes()


@pytest.mark.parametrize("entry", QUANTIZED, ids=ids)
@pytest.mark.parametrize("shape", [(0, 64), (3, 0)], ids=str)
def test_quantized_layouts_refuse_empty_tensors(entry: Layout, shape: tuple[int, ...]) -> None:
    with pytest.raises(Parse):
        entry.encode(np.zeros(shape, np.float32))


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
def test_planes_begin_the_payload_and_the_tail_ends_it(entry: Layout) -> None:
    values, end = heavy_tailed(5, 64), 0
    for plane in entry.planes((5, 64)):
        assert plane.offset == end
        end += plane.nbytes
    survey = whole_survey(entry, values)
    tail = entry.tail_head(5, 64, survey).nbytes + entry.tail_rows(values, survey, 0).nbytes
    assert end + tail == entry.encoded_nbytes((5, 64), survey) == len(entry.encode(values))
    if entry.exact_size:
        assert end + tail == entry.payload_nbytes((5, 64))


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("cols", [64, 72])
def test_blocks_of_rows_fill_the_planes(entry: Layout, cols: int, isa: str) -> None:
    if cols % 32 and needs_groups(entry):
        cols = 96
    values = heavy_tailed(23, cols)
    assert 4 % entry.block_rows(cols) == 0
    survey = whole_survey(entry, values)

    def encode(first: int) -> tuple[NDArray[np.uint8], ...]:
        return encode_block(entry, values[first : first + 4], values, first, isa)

    with ThreadPoolExecutor(3) as executor:
        blocks = list(executor.map(encode, range(0, 23, 4)))
    parts = [piece.tobytes() for plane in zip(*blocks, strict=True) for piece in plane]
    parts.append(entry.tail_head(23, cols, survey).tobytes())
    parts += [entry.tail_rows(values[first : first + 4], survey, first).tobytes() for first in range(0, 23, 4)]
    assert b"".join(parts) == entry.encode(values)


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("cols", [64, 72])
def test_any_rows_can_be_decoded(entry: Layout, cols: int, isa: str) -> None:
    shape = 300, 96 if cols % 32 and needs_groups(entry) else cols
    payload = entry.encode(heavy_tailed(*shape))
    whole = entry.decode(payload, shape)
    for first, last in ((0, 1), (7, 7), (5, 130), (299, 300)):
        rows = native.decode_rows(entry, payload, shape, first, last, isa=isa)
        assert rows.tobytes() == whole[first:last].tobytes()


@pytest.mark.parametrize("values", [np.zeros((4, 32)), np.zeros((4, 64), np.float32)[:, ::2], np.zeros(32, np.float32)])
def test_native_refuses_what_is_no_matrix_of_weights(values: NDArray[Any], isa: str) -> None:
    with pytest.raises(UsageError, match="element_type"):
        native.encode_rows(layout("f32"), values, isa=isa)


def test_the_core_checks_its_buffers(isa: str) -> None:
    values = heavy_tailed(2, 32)
    for planes in ([bytearray(63)], [bytearray(65)], [bytearray(64), bytearray(2)], []):
        with pytest.raises(UsageError, match="planes"):
            core.encode(3, "plain", values, planes, b"", 0, isa)
    with pytest.raises(BufferError):
        core.encode(0, "plain", values, [bytes(256)], b"", 0, isa)  # not writable
    with pytest.raises(UsageError, match="element_type"):
        core.encode(0, "plain", values.astype(np.float64), [bytearray(256)], b"", 0, isa)
    with pytest.raises(UnsupportedFeature, match="id 5"):
        core.encode(5, "plain", values, [bytearray(256)], b"", 0, isa)
    with pytest.raises(UsageError, match="encoder"):
        core.encode(0, "fastest", values, [bytearray(256)], b"", 0, isa)
    with pytest.raises(UsageError, match="isa"):
        core.encode(0, "plain", values, [bytearray(256)], b"", 0, "sse9")
    with pytest.raises(UsageError, match="survey"):
        core.encode(9, "plain", values, [bytearray(64), bytearray(4)], bytes(62), 0, isa)
    with pytest.raises(UsageError, match="survey"):
        core.encode(13, "plain", values, [bytearray(12)], b"", 0, isa)
    with pytest.raises(UsageError, match="encoder"):
        core.encode(3, "diffuse", values, [bytearray(64), bytearray(4)], b"", 0, isa)
    for payload in (bytes(67), bytes(69)):
        with pytest.raises(UsageError, match="payload"):
            core.decode(3, payload, 2, values, 0, isa)
    with pytest.raises(UsageError, match="payload"):
        core.decode(14, bytes(29), 2, values, 0, isa)
    for first in (1, 3):
        with pytest.raises(UsageError, match="rows"):
            core.decode(3, bytes(68), 2, values, first, isa)


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("delta", [-1, 1])
def test_payloads_of_another_size_are_refused(entry: Layout, delta: int) -> None:
    payload = entry.encode(heavy_tailed(3, 64)) + b"\0"
    with pytest.raises(Bounds):
        entry.decode(payload[: len(payload) - 1 + delta], (3, 64))


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
def test_payloads_may_be_any_contiguous_buffer(entry: Layout) -> None:
    payload = entry.encode(heavy_tailed(3, 64))
    expected = entry.decode(payload, (3, 64))
    shifted = memoryview(b"\0" + payload)[1:]
    for form in (bytearray(payload), memoryview(payload), np.frombuffer(payload, np.uint8), shifted):
        np.testing.assert_array_equal(entry.decode(form, (3, 64)), expected)


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
def test_other_element_types_and_encoders_are_refused(entry: Layout) -> None:
    with pytest.raises(UsageError, match="element_type"):
        entry.encode(np.zeros((2, 32), np.float64))
    with pytest.raises(UsageError, match="encoder"):
        entry.encode(np.zeros((2, 32), np.float32), encoder="fastest")  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", WEIGHTS, ids=ids)
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("shape", [(1, 32), (5, 96), (3, 160), (2, 33), (7, 1)], ids=str)
def test_what_is_encoded_is_not_odd(entry: Layout, encoder: Encoder, shape: tuple[int, int]) -> None:
    if shape[1] % 32 and needs_groups(entry):
        return
    assert not list(entry.oddities(entry.encode(heavy_tailed(*shape), encoder=encoder), shape))


@pytest.mark.parametrize("entry", [entry for entry in WEIGHTS if entry.exact_size or entry.name == "q1t"], ids=ids)
def test_looking_for_oddities_copies_little(entry: Layout) -> None:
    shape = (2048, 2048)
    payload = np.zeros(entry.payload_nbytes(shape), np.uint8)
    tracemalloc.start()
    try:
        assert not list(entry.oddities(payload, shape))
        assert tracemalloc.get_traced_memory()[1] < payload.size / 50
    finally:
        tracemalloc.stop()
