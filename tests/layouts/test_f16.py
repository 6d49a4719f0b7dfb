from __future__ import annotations

import numpy as np
import pytest

from cortiq.layouts.bits import bf16_from_f32, f16_from_f32, f32_from_bf16, f32_from_f16, fits_f16

HALF_STEP = 2.0**-25


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3C00),
        (1 + 2.0**-11, 0x3C00),  # a tie among normal halves: to even
        (1 + 3 * 2.0**-11, 0x3C02),
        (65519.996, 0x7BFF),
        (2.0**-14, 0x0400),
        (HALF_STEP, 0x0001),  # a tie among subnormal halves: away from zero
        (-HALF_STEP, 0x8001),
        (np.nextafter(np.float32(HALF_STEP), np.float32(0)), 0x0000),
        (5 * HALF_STEP, 0x0003),
        (2.0**-14 - HALF_STEP, 0x0400),  # rounds up to the smallest normal half
        (1e-45, 0x0000),
    ],
)
def test_rounding(value: float, bits: int) -> None:
    assert f16_from_f32(np.array([value], np.float32))[0] == bits


def test_every_half_survives() -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    finite = halves[(halves & 0x7C00) != 0x7C00]
    np.testing.assert_array_equal(f16_from_f32(f32_from_f16(finite)), finite)


def test_every_bf16_survives() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    finite = bits[(bits & 0x7F80) != 0x7F80]
    np.testing.assert_array_equal(bf16_from_f32(f32_from_bf16(finite)), finite)


def test_what_fits() -> None:
    assert fits_f16(np.array([65519.0, -1e-30], np.float32))
    assert not fits_f16(np.array([0.0, -65520.0], np.float32))
    assert fits_f16(np.zeros(0, np.float32))
