"""Shapes and sizes a directory record may claim."""

from __future__ import annotations

import pytest

from cortiq.errors import Bounds, Parse
from cortiq.layouts import LAYOUTS, Layout, check_tensor, layout

U32 = 0xFFFFFFFF
MATRIX_ONLY = (
    "q8_row", "vbit", "q8_2f", "vbit_ro", "q4_tiled", "q1", "q1s", "q1t", "q4tp", "q2tp",
)  # fmt: skip
GROUPED = tuple(name for name in MATRIX_ONLY if name not in ("q8_row", "q8_2f"))
QUANTIZED = (*MATRIX_ONLY, "q4_block")
PLAIN = ("f32", "f16", "bf16", "u8")

# Bytes of a [64, 128] tensor: 8192 weights, 256 groups, 4 groups a row.
SIZES = {
    "f32": 32768, "f16": 16384, "bf16": 16384, "u8": 8192, "q8_row": 8320, "q4_block": 4608, "q8_2f": 8576,
    "vbit": 64 + 512 + 64 * 48, "vbit_ro": 64 + 512 + 4 * 65 + 64 * 48, "q4_tiled": 4608, "q1": 1536, "q1s": 1540,
    "q1t": 2304 + 4 * 65, "q4tp": 64 * (64 + 4 + 3), "q2tp": 64 * (32 + 4 + 3),
}  # fmt: skip


def test_the_table_is_complete() -> None:
    assert set(SIZES) == {entry.name for entry in LAYOUTS.values()}


@pytest.mark.parametrize("name", SIZES)
def test_size_of_a_matrix(name: str) -> None:
    assert layout(name).payload_nbytes((64, 128)) == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_one_byte_less_is_refused(name: str) -> None:
    entry = layout(name)
    check_tensor(entry.id, (64, 128), SIZES[name])
    with pytest.raises(Bounds) as raised:
        check_tensor(entry.id, (64, 128), SIZES[name] - 1)
    assert raised.value.kind == "Bounds.nbytes"


@pytest.mark.parametrize("name", SIZES)
def test_one_byte_more_is_refused_where_the_shape_decides(name: str) -> None:
    entry = layout(name)
    if entry.exact_size:
        with pytest.raises(Bounds, match="nbytes"):
            check_tensor(entry.id, (64, 128), SIZES[name] + 1)
    else:
        check_tensor(entry.id, (64, 128), SIZES[name] + 1)


@pytest.mark.parametrize("dtype", [5, 7, 17, 200, 255])
def test_undefined_dtypes_are_refused(dtype: int) -> None:
    with pytest.raises(Parse) as raised:
        check_tensor(dtype, (1, 32), 64)
    assert raised.value.kind == "Parse.dtype"


def test_names_are_known_too() -> None:
    assert layout("q4_tiled") is layout(11)
    with pytest.raises(Parse, match="mix8_4"):
        layout("mix8_4")


@pytest.mark.parametrize("name", SIZES)
def test_seven_dimensions_are_refused(name: str) -> None:
    with pytest.raises(Parse) as raised:
        layout(name).payload_nbytes((1, 1, 1, 1, 1, 1, 32))
    assert raised.value.kind == "Parse.ndim"


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_scalars_are_refused(name: str) -> None:
    with pytest.raises(Parse) as raised:
        layout(name).payload_nbytes(())
    assert raised.value.kind == "Parse.ndim"


@pytest.mark.parametrize("name", MATRIX_ONLY)
@pytest.mark.parametrize("shape", [(32,), (2, 2, 32)], ids=str)
def test_matrix_layouts_refuse_other_dimensions(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(Parse) as raised:
        layout(name).payload_nbytes(shape)
    assert raised.value.kind == "Parse.ndim_dtype"


def test_q4_block_takes_any_dimensions() -> None:
    assert layout("q4_block").payload_nbytes((2, 3, 11)) == 18 * 3
    assert layout("q4_block").payload_nbytes((33,)) == 18 * 2


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("cols", [33, 31, 16, 0])
def test_columns_come_in_groups(name: str, cols: int) -> None:
    with pytest.raises(Parse) as raised:
        layout(name).payload_nbytes((4, cols))
    assert raised.value.kind == "Parse.in_mod_32"


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_tensors_are_not_empty(name: str) -> None:
    with pytest.raises(Parse) as raised:
        layout(name).payload_nbytes((0, 128))
    assert raised.value.kind == "Parse.zero_dim"


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("shape", [(0, 128), (0,), (3, 0, 5)], ids=str)
def test_plain_tensors_may_be_empty(name: str, shape: tuple[int, ...]) -> None:
    check_tensor(layout(name).id, shape, 0)
    with pytest.raises(Bounds, match="nbytes"):
        check_tensor(layout(name).id, shape, 2)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_scalars(name: str) -> None:
    check_tensor(layout(name).id, (), layout(name).payload_nbytes((1,)))


@pytest.mark.parametrize(
    ("name", "shape", "claimed"),
    [
        ("f32", (2**31, 2**31), 0),
        ("f16", (65536, 65536, 65536, 65536), 0),
        ("f32", (2147485647, 2147481650), 8573958584),
        ("q8_2f", (U32, U32), 8589934589),
        ("q4_tiled", (U32, U32 - 31), 0),
        ("f32", (U32,) * 6, 0),
        ("u8", (U32,) * 6, 0),
        ("vbit_ro", (U32, 32), 4 * 2**32),
        ("f32", (2**32, 1), 4 * 2**32),
        ("f16", (-1, 32), 0),
    ],
)
def test_sizes_that_wrap_are_refused(name: str, shape: tuple[int, ...], claimed: int) -> None:
    with pytest.raises(Bounds) as raised:
        check_tensor(layout(name).id, shape, claimed)
    assert raised.value.kind == "Bounds.size_overflow"


def test_more_than_32_bits_of_elements_are_counted_right() -> None:
    check_tensor(1, (65536, 65537), 2 * 65536 * 65537)
    check_tensor(11, (65536, 65568), 65536 * 65568 // 32 * 18)


@pytest.mark.parametrize("entry", LAYOUTS.values(), ids=lambda entry: entry.name)
def test_names_and_ids_are_unique(entry: Layout) -> None:
    assert layout(entry.name) is layout(entry.id) is entry


def test_overlays_must_reach_every_weight() -> None:
    with pytest.raises(Parse) as raised:
        layout("q1s").payload_nbytes((2**17, 2**16))
    assert raised.value.kind == "Parse.q1s_too_large"
    with pytest.raises(Parse) as raised:
        layout("q1t").payload_nbytes((2, 65568))
    assert raised.value.kind == "Parse.q1t_cols"
    layout("q1t").payload_nbytes((2, 65504))
