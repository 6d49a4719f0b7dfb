from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.weights import appendix_a, awkward, heavy_tailed
from cortiq.container.hash64 import hash64
from cortiq.errors import Bounds, NonFinite, Parse, UsageError
from cortiq.layouts import layout, native
from cortiq.layouts.vbit import WIDTHS, Vbit, nearest_widths, widths_of_rows

VBIT, VBIT_RO = layout("vbit"), layout("vbit_ro")
assert isinstance(VBIT, Vbit)
assert isinstance(VBIT_RO, Vbit)
KINDS = [VBIT, VBIT_RO]


def some_widths(rows: int) -> NDArray[np.uint8]:
    return np.resize(np.array(WIDTHS, np.uint8), rows)


@pytest.mark.parametrize(
    ("kind", "length", "digest"), [(VBIT, 164, 0xDE750AE223797C58), (VBIT_RO, 184, 0x1C93F4D29B3C8DEB)]
)
def test_vector_of_a_formula(kind: Vbit, length: int, digest: int) -> None:
    payload = kind.encode(appendix_a(), encoder="plain")
    assert payload[:16].hex() == "05050305ab26ab269a26772615242024"
    assert (len(payload), hash64(payload)) == (length, digest)


def test_a_row_by_hand() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = [3.0, -3.0, 1.0, 0.4]  # u = 6, 0, 4, 3 with L = 3
    payload = VBIT.encode(values, widths=np.uint8([3]))
    packed = int("110" + "000" + "100" + "011" + "011" * 28, 2).to_bytes(12, "big")
    assert payload == b"\x03" + b"\x00\x3c" + packed
    np.testing.assert_array_equal(VBIT.decode(payload, (1, 32))[0, :5], [3, -3, 1, 0, 0])


def test_the_level_beyond_the_largest_weight_is_read() -> None:
    payload = b"\x03" + b"\x00\x3c" + b"\xff" * 12
    np.testing.assert_array_equal(VBIT.decode(payload, (1, 32)), np.full((1, 32), 4, np.float32))


def test_the_table_says_where_rows_begin() -> None:
    payload = VBIT_RO.encode(heavy_tailed(5, 64), widths=some_widths(5))
    table = np.frombuffer(payload, "<u4", 6, 5 + 20)
    np.testing.assert_array_equal(table, np.cumsum([0, 24, 32, 40, 48, 64]))


@pytest.mark.parametrize(
    ("bits", "width"), [(-9.0, 3), (3.5, 3), (3.51, 4), (4.5, 4), (5.5, 5), (7.0, 6), (7.01, 8), (99.0, 8)]
)
def test_the_smaller_of_two_widths_is_taken(bits: float, width: int) -> None:
    assert nearest_widths(np.float32([bits])).tolist() == [width]


def test_loud_rows_get_more_bits() -> None:
    assert widths_of_rows(np.float32([-4, -5, -6, -3, -2]), 4.25).tolist() == [4, 3, 3, 5, 6]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("values", [heavy_tailed(23, 96), awkward()], ids=["ordinary", "awkward"])
def test_round_trip_stays_within_half_a_step_of_each_width(kind: Vbit, values: NDArray[np.float32]) -> None:
    widths = some_widths(len(values))
    decoded = kind.decode(kind.encode(values, widths=widths), values.shape)
    steps = np.abs(values).reshape(len(values), -1, 32).max(axis=2) / (2.0 ** (widths[:, None] - 1) - 1)
    allowed = np.maximum(steps * (1 + 2.0**-10), 2.0**-14).repeat(32, axis=1) * 0.5001
    assert (np.abs(decoded - values) <= allowed).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("element", [np.float32, np.float16])
def test_native_bytes_equal_the_definition_at_given_widths(kind: Vbit, element: Any, isa: str) -> None:
    for values in (heavy_tailed(23, 96).astype(element), heavy_tailed(3, 8192).astype(element)):
        widths = some_widths(len(values))
        payload = kind.encode(values, widths=widths)
        planes = native.encode_rows(kind, values, survey=widths, isa=isa)
        head = kind.tail_head(*values.shape, widths)
        packed = native.tail_rows(kind, values, widths, isa=isa)
        assert b"".join(part.tobytes() for part in (*planes, head, packed)) == payload
        assert native.decode(kind, payload, values.shape, isa=isa).tobytes() == (
            kind.decode(payload, values.shape).tobytes()
        )


def test_every_pattern_of_bits_decodes_alike(isa: str) -> None:
    rng = np.random.default_rng(3)
    widths = some_widths(10)
    scales = rng.integers(0, 0x7C00, (10, 16)).astype("<u2")
    packed = rng.integers(0, 256, int(4 * 16 * widths.sum(dtype=int)), np.uint8)
    payload = widths.tobytes() + scales.tobytes() + packed.tobytes()
    assert native.decode(VBIT, payload, (10, 512), isa=isa).tobytes() == VBIT.decode(payload, (10, 512)).tobytes()


def test_blocks_name_the_row_of_the_tensor(isa: str) -> None:
    values, widths = heavy_tailed(4, 64), np.full(14, 4, np.uint8)
    values[3, 17] = np.inf
    with pytest.raises(NonFinite, match=r"weight \[13, 17\] is not finite"):
        native.encode_rows(VBIT, values, survey=widths, first_row=10, isa=isa)
    with pytest.raises(UsageError, match="survey"):
        native.encode_rows(VBIT, values, survey=widths[:13], first_row=10, isa=isa)


@pytest.mark.parametrize("table", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_table_that_was_not_validated_leads_nowhere(table: int, isa: str) -> None:
    from cortiq.native import core

    payload = bytearray(VBIT_RO.encode(heavy_tailed(3, 64)))
    payload[3 + 12 + 4 : 3 + 12 + 8] = table.to_bytes(4, "little")
    values = np.zeros((1, 64), np.float32)
    core.decode(VBIT_RO.id, payload, 3, values, 1, isa)
    assert np.isnan(values).all()


def test_native_row_maxima(isa: str) -> None:
    values = heavy_tailed(7, 5000)
    np.testing.assert_array_equal(native.row_absmax(values, isa=isa), np.abs(values).max(axis=1))
    values[4, 4321] = np.nan
    with pytest.raises(NonFinite, match=r"weight \[14, 4321\] is not finite"):
        native.row_absmax(values, first_row=10, isa=isa)


@pytest.mark.parametrize("width", WIDTHS)
def test_weights_too_large_for_a_width_are_refused(width: int, isa: str) -> None:
    limit = np.float32(65520) * np.float32(2 ** (width - 1) - 1)
    widths, values = np.uint8([8, width, 8]), heavy_tailed(3, 64)
    values[1, 40] = np.nextafter(limit, np.float32(0))
    native.encode_rows(VBIT, values, survey=widths, isa=isa)
    assert np.isfinite(VBIT.decode(VBIT.encode(values, widths=widths), (3, 64))).all()
    values[1, 40] = -limit
    for encode in (
        lambda: VBIT.encode(values, widths=widths),
        lambda: native.encode_rows(VBIT, values, survey=widths, isa=isa),
    ):
        with pytest.raises(NonFinite, match=r"weight \[1, 40\] is too large for .*vbit") as raised:
            encode()
        assert raised.value.kind == "NonFinite.range"


@pytest.mark.parametrize("width", [0, 2, 7, 9, 255])
def test_other_widths_are_refused(width: int, isa: str) -> None:
    values, widths = heavy_tailed(3, 64), np.uint8([3, width, 8])
    payload = bytearray(VBIT_RO.encode(values))
    payload[1] = width
    for refused in (
        lambda: VBIT.encode(values, widths=widths),
        lambda: native.encode_rows(VBIT, values, survey=widths, isa=isa),
        lambda: VBIT_RO.validate(payload, (3, 64)),
    ):
        with pytest.raises(Parse, match="row 1") as raised:
            refused()
        assert raised.value.kind == "Parse.vbit_bits"


def test_a_wider_row_or_surplus_bytes_are_refused() -> None:
    payload = VBIT.encode(heavy_tailed(3, 64), widths=np.uint8([3, 4, 5]))
    for wrong in (b"\x08" + payload[1:], payload + b"\0"):
        with pytest.raises(Bounds) as raised:
            VBIT.validate(wrong, (3, 64))
        assert raised.value.kind == "Bounds.vbit_size"


@pytest.mark.parametrize(("entry", "value"), [(0, 1), (1, 0xFFFFFFFF), (3, 0)])
def test_a_table_that_contradicts_the_widths_is_refused(entry: int, value: int) -> None:
    payload = bytearray(VBIT_RO.encode(heavy_tailed(3, 64)))
    at = 3 + 12 + 4 * entry
    payload[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(Bounds) as raised:
        VBIT_RO.validate(payload, (3, 64))
    assert raised.value.kind == "Bounds.vbit_offsets"


def test_the_core_checks_its_buffers(isa: str) -> None:
    from cortiq.native import core

    values, widths = heavy_tailed(2, 32), np.uint8([3, 4])
    for wrong in (
        lambda: core.vbit_pack(values, widths[:1], bytearray(28), isa),
        lambda: core.vbit_pack(values, widths, bytearray(27), isa),
        lambda: core.row_absmax(values, bytearray(4), 0, isa),
    ):
        with pytest.raises(UsageError, match="planes"):
            wrong()
    with pytest.raises(Parse, match="vbit_bits"):
        core.vbit_pack(values, np.uint8([3, 7]), bytearray(40), isa)
