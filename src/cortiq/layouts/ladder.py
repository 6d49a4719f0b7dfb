"""The ladder of scales of q4tp and q2tp: 32 rungs a row, and per group the number of its rung (SPEC 3.2).

    params   per row [f16 lo][f16 step]
    rungs    t[0] = exp2(lo), t[c] = t[c - 1] * exp2(step), f32 products in this order
    codes    per group a number of 5 bits, least significant bit first, each row padded to a byte with zeros

Both ends must agree on every bit of exp2. Correct rounding is not what existing files were written with: C libraries
that descend from one published routine (glibc, musl, bionic) have an exp2f that is off by one float at 42 of the 45,224
halves with a finite result. ``exp2`` is that function, spelt out in double precision, so that no library is asked.

log2 only steers the encoder. It is that of double precision, rounded to f32. Its arguments are halves, so all that can
occur have been tried: no exact value comes near the middle between two floats, and any library that is right to some
bits less than double precision gives the same floats (``tests/layouts/test_ladder.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Parse
from cortiq.layouts.base import Bytes, Floats
from cortiq.layouts.bits import F16_TINY, f16_from_f32, f32_from_f16
from cortiq.layouts.sizes import GROUP

RUNGS = 32
PARAMS_NBYTES = 4
_CODE_BITS = 5
_MOST_STEPS = 64
_TOP = 127  # exp2 of more does not fit f32
_BEYOND = 160  # exp2 of more is infinity, of less than its negative zero

# 2^(k / 32 + r) = 2^(k / 32) * (1 + r * (C1 + r * (C2 + r * C3))) for |r| <= 1 / 64
_PARTS = 32
_C3, _C2, _C1 = (float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))

Codes = NDArray[np.int64]
Errors = Callable[[Floats], Floats]


def exp2(values: Floats) -> Floats:
    """2^x of f32: a table of 32 roots of two and a cubic, in double precision, in the order written here."""
    x = np.clip(values.astype(np.float64), -_BEYOND, _BEYOND)
    whole = np.rint(x * _PARTS)
    rest, part = x - whole / _PARTS, whole.astype(np.int64)
    scale = np.ldexp(_ROOTS[part % _PARTS], part // _PARTS)
    with np.errstate(over="ignore", under="ignore"):
        power: Floats = (((_C3 * rest + _C2) * (rest * rest) + (_C1 * rest + 1)) * scale).astype(np.float32)
    return power


def _root_of_two(part: int) -> float:
    """2^(part / 32), correctly rounded: five square roots of a whole number."""
    root: int = 1 << (part + _PARTS * 80)
    for _ in range(5):
        root = isqrt(root)
    return root / (1 << 80)


_ROOTS = np.array([_root_of_two(part) for part in range(_PARTS)])


def log2(values: Floats) -> Floats:
    """log2(x), rounded once."""
    return np.log2(values.astype(np.float64)).astype(np.float32)


def ladders(params: Bytes) -> Floats:
    """f32 [rows, 32] rungs of u8 [rows, 4] params."""
    low, step = f32_from_f16(np.ascontiguousarray(params).view(np.uint16)).T
    rungs = np.empty((len(params), RUNGS), np.float32)
    rungs[:, 0], ratio = exp2(low), exp2(step)
    with np.errstate(over="ignore", under="ignore"):
        for code in range(1, RUNGS):
            rungs[:, code] = rungs[:, code - 1] * ratio
    return rungs


def log_scales(groups: Floats, levels: np.float32) -> tuple[Floats, NDArray[np.bool_]]:
    """log2 of the plain scale max(f16(absmax / levels), 2^-14) of each group, and which groups are all zero.

    ``groups`` f32 [rows, groups, 32]; both results [rows, groups].
    """
    absmax = np.abs(groups).max(axis=-1)
    scales = np.maximum(f32_from_f16(f16_from_f32(absmax / levels)), F16_TINY)
    return log2(scales), absmax == 0


def ends(logs: Floats, dead: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Lowest and highest value of each row over the groups that are not ``dead``; all of them when all are."""
    counted = ~dead | dead.all(axis=1, keepdims=True)
    low = np.where(counted, logs, np.float32(np.inf)).min(axis=1)
    high = np.where(counted, logs, np.float32(-np.inf)).max(axis=1)
    return low, high


def fit_params(low: Floats, top: Floats, span: int) -> Bytes:
    """u8 [rows, 4] params whose rung at ``low`` + ``span`` steps is not below ``top``.

    Both are rounded to f16. The step grows from the nearest half, one half at a time, until it reaches the top.
    """
    low_half = f16_from_f32(low)
    stored = f32_from_f16(low_half)
    step = f16_from_f32(np.maximum(top - stored, np.float32(0)) / np.float32(span))
    for _ in range(_MOST_STEPS):
        value = f32_from_f16(step)
        reached = (value > 0) & (stored + np.float32(span) * value >= top)
        if reached.all():
            break
        step = step + (~reached).astype(np.uint16)
    return np.stack([low_half, step], axis=1).view(np.uint8)


def nearest_codes(logs: Floats, params: Bytes, most: int) -> Codes:
    """The step of the ladder nearest to each log scale [rows, groups], from 0 to ``most``."""
    low, step = f32_from_f16(params.view(np.uint16)).T[..., None]
    codes: Codes = np.rint(np.clip((logs - low) / step, np.float32(0), np.float32(most))).astype(np.int64)
    return codes


def search_codes(errors: Errors, rungs: Floats, start: Codes, candidates: Iterable[Codes], lowest: int) -> Codes:
    """Per group the first candidate whose rung has the smallest error, or ``start`` when there is none.

    ``rungs`` f32 [n, 32] is the ladder of each group, codes are [n]; candidates below ``lowest`` or above 31 do not
    count. ``errors`` gives the squared error of the groups for one scale each.
    """
    best, least = start, np.full(start.shape, np.inf, np.float32)
    for candidate in candidates:
        code = np.clip(candidate, lowest, RUNGS - 1)
        found = errors(np.take_along_axis(rungs, code[:, None], axis=1)[:, 0])
        better = (code == candidate) & (found < least)
        best, least = np.where(better, code, best), np.where(better, found, least)
    return best


def smallest_errors(errors: Errors, rungs: Floats, candidates: Iterable[Codes], lowest: int) -> Floats:
    """The error ``search_codes`` would end with."""
    least: Floats | None = None
    for candidate in candidates:
        code = np.clip(candidate, lowest, RUNGS - 1)
        found = errors(np.take_along_axis(rungs, code[:, None], axis=1)[:, 0])
        found = np.where(code == candidate, found, np.float32(np.inf))
        least = found if least is None else np.minimum(least, found)
    assert least is not None
    return least


def around(codes: Codes, below: int, above: int) -> list[Codes]:
    """Candidates from ``codes`` - ``below`` to ``codes`` + ``above``."""
    return [codes + offset for offset in range(-below, above + 1)]


def every(codes: Codes, lowest: int) -> list[Codes]:
    """All rungs from ``lowest`` as candidates."""
    return [np.full_like(codes, code) for code in range(lowest, RUNGS)]


def pack_codes(codes: Codes) -> Bytes:
    """u8 [rows, ceil(5 groups / 8)] of codes [rows, groups]."""
    bits = (codes[:, :, None] >> np.arange(_CODE_BITS)) & 1
    return np.packbits(bits.astype(np.uint8).reshape(len(codes), -1), axis=1, bitorder="little")


def unpack_codes(packed: Bytes, groups: int) -> Codes:
    """The reverse. Padding bits are not looked at."""
    bits = np.unpackbits(packed, axis=1, count=_CODE_BITS * groups, bitorder="little")
    codes: Codes = bits.reshape(len(packed), groups, _CODE_BITS).astype(np.int64) @ (1 << np.arange(_CODE_BITS))
    return codes


def first_padded(packed: Bytes, groups: int) -> int | None:
    """The first row of u8 [rows, ceil(5 groups / 8)] with bits that are not 0 behind its last code."""
    used = _CODE_BITS * groups % 8
    odd = packed[:, -1] >= 1 << used if used else np.zeros(0, np.bool_)
    return int(np.argmax(odd)) if odd.any() else None


def group_scales(params: Bytes, codes: Bytes, groups: int) -> Floats:
    """f32 [rows, groups] rungs that ``codes`` name, of ladders whose rung 0 is ``exp2(lo)``."""
    return np.take_along_axis(ladders(params), unpack_codes(codes, groups), axis=1)


def check_params(params: Bytes, span: int) -> None:
    """Raise Parse.q4tp_ladder for a row whose lo or step is not finite or whose rungs reach beyond f32."""
    low, step = params.copy().view("<f2").reshape(-1, 2).astype(np.float64).T
    with np.errstate(invalid="ignore"):
        top = np.maximum(low, low + span * step)
    bad = ~np.isfinite(low) | ~np.isfinite(step) | (top > _TOP) | (step > _TOP)
    if bad.any():
        raise Parse(f"scale ladder of row {int(np.argmax(bad))}", code="q4tp_ladder")


def as_columns(groups: Floats) -> Floats:
    """f32 [32, n] of [..., 32]: column i holds weight i of every group."""
    return np.ascontiguousarray(groups.reshape(-1, GROUP).T)
