"""The bits of ``required_features`` (SPEC 1.1) and who sets them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag

from cortiq.errors import Parse, UnsupportedFeature

_TWO_FIELD_DTYPES = frozenset({8, 9})


class Feature(IntFlag):
    """Names of SPEC 1.1. ``DELTA_MASKS`` and ``HOT_PACKS`` are reserved: their meaning is not defined."""

    TENSOR_DIR = 1
    BINARY_MASKS = 2
    QUANT_2F = 4
    DELTA_MASKS = 8
    HOT_PACKS = 16
    LOOP_MASKS = 32
    SKILL_FILE = 64


SUPPORTED = Feature.TENSOR_DIR | Feature.BINARY_MASKS | Feature.QUANT_2F | Feature.LOOP_MASKS | Feature.SKILL_FILE


def check_features(bits: int, offset: int) -> Feature:
    """``bits`` as features.

    Raises UnsupportedFeature.feature_bit naming each unknown or reserved bit, Parse.no_tensor_dir without bit 0.
    """
    unknown = [bit for bit in range(32) if bits >> bit & 1 and not SUPPORTED >> bit & 1]
    if unknown:
        names = ", ".join(_bit_name(bit) for bit in unknown)
        raise UnsupportedFeature(
            f"the file requires features this reader does not know: {names}",
            code="feature_bit",
            section="envelope",
            offset=offset,
            expected=f"bits of {int(SUPPORTED):#x}",
            found=f"{bits:#x}",
        )
    if not bits & Feature.TENSOR_DIR:
        raise Parse(
            "required_features does not announce the tensor directory",
            code="no_tensor_dir",
            section="envelope",
            offset=offset,
            expected="bit 0 set",
            found=f"{bits:#x}",
        )
    return Feature(bits)


def features_of(dtypes: Iterable[int], *, masks: bool, loops: int, skill_file: bool) -> Feature:
    """The bits a writer sets for a file with tensors of ``dtypes``."""
    bits = Feature.TENSOR_DIR
    if masks:
        bits |= Feature.BINARY_MASKS
    if not _TWO_FIELD_DTYPES.isdisjoint(dtypes):
        bits |= Feature.QUANT_2F
    if masks and loops > 1:
        bits |= Feature.LOOP_MASKS
    if skill_file:
        bits |= Feature.SKILL_FILE
    return bits


def _bit_name(bit: int) -> str:
    known = {int(feature): feature.name for feature in Feature}
    name = known.get(1 << bit)
    return f"bit {bit} ({name}, reserved)" if name else f"bit {bit}"
