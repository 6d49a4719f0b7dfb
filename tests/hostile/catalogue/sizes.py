"""Sizes of every dtype for one shape, written out from SPEC 3.2."""

from __future__ import annotations

from builders.cmf import (
    BF16,
    F16,
    F32,
    Q1,
    Q1S,
    Q1T,
    Q2TP,
    Q4_BLOCK,
    Q4_TILED,
    Q4TP,
    Q8_2F,
    Q8_ROW,
    U8,
    VBIT,
    VBIT_RO,
)

NBYTES = {  # of a [64, 128] tensor; the smallest there is for VBIT, VBIT_RO, Q1S and Q1T
    F32: 32768,
    F16: 16384,
    BF16: 16384,
    Q8_ROW: 8192 + 128,
    Q4_BLOCK: 256 * 18,
    U8: 8192,
    VBIT: 64 + 512 + 64 * 48,
    Q8_2F: 8192 + 128 + 256,
    VBIT_RO: 64 + 512 + 4 * 65 + 64 * 48,
    Q4_TILED: 256 * 18,
    Q1: 256 * 6,
    Q1S: 256 * 6 + 4,
    Q1T: 256 * 9 + 4 * 65,
    Q4TP: 64 * (4 * 16 + 4 + 3),
    Q2TP: 64 * (4 * 8 + 4 + 3),
}
VARIABLE = (VBIT, VBIT_RO, Q1S, Q1T)
GROUPED = (VBIT, VBIT_RO, Q4_TILED, Q1, Q1S, Q1T, Q4TP, Q2TP)
MATRIX_ONLY = (Q8_ROW, Q8_2F, *GROUPED)
