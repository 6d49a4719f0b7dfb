"""Names of dtypes on the command line, parsed once (SPEC 3.1, 11)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cortiq.errors import UnsupportedFeature, UsageError
from cortiq.layouts import layout

_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "q8": "q8_row", "q8_row": "q8_row", "q8row": "q8_row",
        "q8_2f": "q8_2f", "q82f": "q8_2f", "q8f": "q8_2f",
        "q4": "q4_block", "q4_block": "q4_block", "q4block": "q4_block",
        "q4t": "q4_tiled", "q4_tiled": "q4_tiled",
        "q4tp": "q4tp", "q4t_pred": "q4tp",
        "q2tp": "q2tp", "q2t_pred": "q2tp",
        "vbit": "vbit_ro", "v_bit": "vbit_ro",
        "q1": "q1", "q1p": "q1p", "q1_ptq": "q1p",
        "q1s": "q1s", "q1_mask": "q1s",
        "q1t": "q1t", "q1_ternary": "q1t",
        "f16": "f16", "fp16": "f16", "bf16": "bf16", "f32": "f32",
    }
)  # fmt: skip

QUANT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "q8_row": "Q8_ROW", "q8_2f": "Q8_2F", "q4_block": "Q4_BLOCK", "q4_tiled": "Q4_BLOCK", "q4tp": "Q4_BLOCK",
        "q2tp": "Q4_BLOCK", "vbit_ro": "VBIT", "q1": "VBIT", "q1p": "VBIT", "q1s": "VBIT", "q1t": "VBIT",
        "f16": "F16", "bf16": "BF16", "f32": "F32",
    }
)  # fmt: skip
"""The header's informational ``quant_type`` by dtype of the layers' matrices."""

_PROBE = (64, 4096)


def parse_dtype(text: str) -> str:
    """The name SPEC 3.1 gives the dtype that ``text`` means, in any case; ``q1p``: q1 by error diffusion.

    Raises UsageError.dtype for a name nobody knows, UnsupportedFeature.dtype for a dtype that cannot be written yet.
    """
    name = _ALIASES.get(text.lower())
    if name is None:
        raise UsageError("unknown dtype", code="dtype", expected=", ".join(_ALIASES), found=text)
    if not layout(name).has_codec:
        written = ", ".join(alias for alias, target in _ALIASES.items() if layout(target).has_codec)
        raise UnsupportedFeature(
            f"weights cannot be written as {name} yet", code="dtype", expected=f"one of {written}", found=text
        )
    return name


def bits_per_weight(dtype: str) -> float:
    """Bits a weight of a large matrix takes, scales included."""
    rows, cols = _PROBE
    return layout(dtype).payload_nbytes(_PROBE) * 8 / (rows * cols)
