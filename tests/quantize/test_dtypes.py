"""Names of dtypes, and what a weight costs in each."""

from __future__ import annotations

import pytest

from cortiq.container import QUANT_TYPES as HEADER_QUANT_TYPES
from cortiq.errors import UnsupportedFeature, UsageError
from cortiq.layouts import LAYOUTS, layout
from cortiq.quantize import QUANT_TYPES, bits_per_weight, parse_dtype

SPELLINGS = [
    ("q8_row", ["q8", "Q8", "q8_row", "q8row", "Q8_ROW"]),
    ("q4_tiled", ["q4t", "Q4T", "q4_tiled"]),
    ("f16", ["f16", "fp16", "F16"]),
    ("bf16", ["bf16", "BF16"]),
    ("f32", ["f32"]),
]
OTHER_SPELLINGS = [
    ("q8_2f", ["q8_2f", "q82f", "q8f"]),
    ("q4_block", ["q4", "q4_block", "q4block"]),
    ("q4tp", ["q4tp", "q4t_pred"]),
    ("q2tp", ["q2tp", "q2t_pred"]),
    ("vbit_ro", ["vbit", "v_bit"]),
    ("q1", ["q1"]),
    ("q1p", ["q1p", "q1_ptq"]),
    ("q1s", ["q1s", "q1_mask"]),
    ("q1t", ["q1t", "q1_ternary"]),
]


@pytest.mark.parametrize(("name", "texts"), SPELLINGS)
def test_every_spelling(name: str, texts: list[str]) -> None:
    assert {parse_dtype(text) for text in texts} == {name}


@pytest.mark.parametrize(("name", "texts"), OTHER_SPELLINGS)
def test_a_dtype_is_written_or_refused_by_its_name(name: str, texts: list[str]) -> None:
    for text in texts:
        if layout(name).has_codec:
            assert parse_dtype(text) == name
        else:
            with pytest.raises(UnsupportedFeature, match=name) as caught:
                parse_dtype(text)
            assert caught.value.exit_code == 7


@pytest.mark.parametrize("text", ["", "q5", "q8 ", "u8", "mix8_4", "Q4_K_M"])
def test_an_unknown_name_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="unknown dtype"):
        parse_dtype(text)


def test_every_writable_dtype_has_a_header_quant_type() -> None:
    weights = {entry.name for entry in LAYOUTS.values() if entry.has_codec and entry.name != "u8"}
    assert weights - {"vbit"} <= set(QUANT_TYPES)
    assert set(QUANT_TYPES.values()) <= set(HEADER_QUANT_TYPES)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("f32", 32.0), ("f16", 16.0), ("bf16", 16.0), ("q4_tiled", 4.5), ("q8_row", 8.0)]
)
def test_bits(dtype: str, bits: float) -> None:
    assert bits_per_weight(dtype) == pytest.approx(bits, abs=0.01)
