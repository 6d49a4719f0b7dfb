from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cortiq.container.hash64 import hash64
from cortiq.errors import Parse
from cortiq.layouts import ladder
from cortiq.layouts.bits import f16_from_f32, f32_from_f16

HALVES = f32_from_f16(np.array([h for h in range(2**16) if h & 0x7C00 != 0x7C00], np.uint16))
# A result of double precision that is wrong by less than this share of the distance between two floats rounds to the
# right float. Libraries are wrong by some 2^-29 of it.
MARGIN = 2.0**-22


def distance_to_a_tie(exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each number is from the nearest middle between two floats, as a share of their distance."""
    rounded = exact.astype(np.float32)
    below = np.where(rounded > exact, np.nextafter(rounded, np.float32(-np.inf)), rounded).astype(np.float64)
    above = np.nextafter(below.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    return np.asarray(np.abs((exact - below) / (above - below) - 0.5))


def test_exp2_of_every_half() -> None:
    # The hash is that of what exp2f of glibc 2.36 gives, over the finite halves in the order of their bits.
    assert hash64(ladder.exp2(HALVES).tobytes()) == 0xB089C4D57A15FE68


def test_exp2_is_one_float_off_at_a_few_halves() -> None:
    values = HALVES[(HALVES > -149) & (HALVES < 128)]
    nearest = np.array([math.exp2(value) for value in values]).astype(np.float32)
    found = ladder.exp2(values)
    wrong = found != nearest
    assert (int(wrong.sum()), len(values)) == (42, 45224)
    assert (np.abs(found[wrong] - nearest[wrong]) == np.spacing(np.minimum(found, nearest)[wrong])).all()


def test_every_library_gives_the_same_log_scales() -> None:
    values = HALVES[HALVES >= 2.0**-14]
    exact = np.array([math.log2(value) for value in values])
    inexact = np.frexp(values)[0] != 0.5
    assert distance_to_a_tie(exact[inexact]).min() > MARGIN
    np.testing.assert_array_equal(ladder.log2(values), exact.astype(np.float32))


def test_whole_exponents_are_exact() -> None:
    whole = np.arange(-160, 128, dtype=np.float32)
    np.testing.assert_array_equal(ladder.exp2(whole), np.ldexp(np.ones_like(whole), whole.astype(int)))
    powers = np.arange(-14, 16)
    np.testing.assert_array_equal(ladder.log2(np.ldexp(np.float32(1), powers)), powers.astype(np.float32))


def params(low: float, step: float) -> NDArray[np.uint8]:
    return np.array([[low, step]], "<f2").view(np.uint8)


def test_rungs_are_products() -> None:
    (rungs,) = ladder.ladders(params(-3.0, 0.3))
    ratio = ladder.exp2(np.float16([0.3]).astype(np.float32))[0]
    assert rungs[0] == 0.125
    assert all(rungs[c] == rungs[c - 1] * ratio for c in range(1, 32))


def test_the_last_rung_reaches_the_top() -> None:
    rng = np.random.default_rng(5)
    low = rng.uniform(-14, 10, 200).astype(np.float32)
    top = low + rng.uniform(0, 6, 200).astype(np.float32) * (rng.random(200) < 0.8)
    for span in (30, 31):
        stored, step = f32_from_f16(ladder.fit_params(low, top, span).view(np.uint16)).T
        assert (stored + span * step >= top).all()
        smaller = f32_from_f16(f16_from_f32(step) - np.uint16(1))
        too_short = (stored + span * smaller < top) | (smaller == 0)
        first = step == f32_from_f16(f16_from_f32(np.maximum(top - stored, 0) / np.float32(span)))
        assert (too_short | first).all()


def test_a_row_of_one_scale_has_the_smallest_step() -> None:
    assert ladder.fit_params(np.float32([-5.0]), np.float32([-5.0]), 31).view(np.uint16).tolist() == [[0xC500, 1]]


def test_codes_of_five_bits() -> None:
    codes = np.array([[1, 31, 0, 16, 2, 0, 0, 0, 31]])
    bits = "".join(format(code, "05b")[::-1] for code in codes[0]).ljust(48, "0")
    packed = ladder.pack_codes(codes)
    assert packed.tobytes() == bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, 48, 8))
    np.testing.assert_array_equal(ladder.unpack_codes(packed, 9), codes)


def test_the_first_of_equal_rungs_stays() -> None:
    start = np.array([7])
    found = ladder.search_codes(np.zeros_like, np.ones((1, 32), np.float32), start, ladder.around(start, 2, 1), 0)
    assert found.tolist() == [5]
    found = ladder.search_codes(np.zeros_like, np.ones((1, 32), np.float32), np.array([1]), ladder.every(start, 1), 1)
    assert found.tolist() == [1]


@pytest.mark.parametrize(
    ("low", "step"),
    [(np.nan, 0.1), (np.inf, 0.1), (-np.inf, 0.1), (128.0, 0.1), (0.0, 16.0), (0.0, np.nan), (-60000.0, 128.0)],
)
def test_ladders_beyond_f32_are_refused(low: float, step: float) -> None:
    with pytest.raises(Parse, match="row 0") as raised:
        ladder.check_params(params(low, step), 31)
    assert raised.value.kind == "Parse.q4tp_ladder"


@pytest.mark.parametrize(("low", "step"), [(-60000.0, 1.0), (3.0, -0.5), (127.0, 0.0), (-100.0, 7.0)])
def test_odd_ladders_are_legal_and_finite(low: float, step: float) -> None:
    ladder.check_params(params(low, step), 31)
    assert np.isfinite(ladder.ladders(params(low, step))).all()
