"""Linear kernels: the same bits as the NumPy definition on every instruction set, batch and split."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from builders.matrices import (
    DTYPES,
    FAST,
    GROUPED,
    INT8,
    Q4_TILED,
    SLOW,
    activations,
    at_page_end,
    extreme_matrix,
    random_matrix,
)
from cortiq.errors import Bounds, ShapeMismatch, UnsupportedFeature, UsageError
from cortiq.layouts import layout
from cortiq.ops import linear as op

native = pytest.importorskip("cortiq._native", reason="the native core is not built")

ISAS = native.supported_isas()
COLUMNS = (32, 64, 288, 576, 896, 1024, 1536, 4864)
ODD_COLUMNS = (1, 17, 33, 257, 511, 577)


def bits(y: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(y).view(np.uint32)


def shapes() -> list[tuple[int, int]]:
    fast = [(dtype, k) for dtype in FAST for k in COLUMNS + (() if dtype in GROUPED else ODD_COLUMNS)]
    return fast + [(dtype, k) for dtype in SLOW for k in (32, 288, *(() if dtype in GROUPED else (1, 33, 577)))]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dtype", "cols"), shapes())
def test_reference_bits(isa: str, dtype: int, cols: int) -> None:
    for rows, m in ((1, 1), (3, 2), (16, 5), (37, 3)):
        matrix, x = random_matrix(dtype, rows, cols), activations(m, cols)
        expected = op.reference(matrix, x)
        assert np.array_equal(bits(op.linear(matrix, x, isa=isa)), bits(expected)), (rows, m)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [*INT8, *SLOW])
@pytest.mark.parametrize("cols", [64, 576])
def test_exact_mode_reference_bits(isa: str, dtype: int, cols: int) -> None:
    for rows, m in ((3, 1), (19, 4)):
        matrix, x = random_matrix(dtype, rows, cols), activations(m, cols)
        y = op.linear(matrix, x, isa=isa, mode="exact")
        assert np.array_equal(bits(y), bits(op.reference(matrix, x, mode="exact")))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [64, 608, 896])
def test_rows_of_a_batch_do_not_matter_to_each_other(isa: str, mode: str, dtype: int, cols: int) -> None:
    if isa == "scalar" and (mode == "exact" or dtype not in INT8):
        cols = 64
    x = activations(64, cols)
    matrix = random_matrix(dtype, 37, cols)
    alone = np.concatenate([op.linear(matrix, x[i : i + 1], isa=isa, mode=mode) for i in range(64)])
    for m in (*range(2, 20), 33, 64):
        assert np.array_equal(bits(op.linear(matrix, x[:m], isa=isa, mode=mode)), bits(alone[:m])), m


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 2, 13])
def test_split_rows(isa: str, dtype: int, m: int) -> None:
    matrix, x = random_matrix(dtype, 61, 224), activations(m, 224)
    whole = op.linear(matrix, x, isa=isa)
    for cuts in ([0, 1, 61], [0, 7, 8, 24, 25, 60, 61], [0, 30, 30, 61]):
        parts = sum(op.linear(matrix, x, isa=isa, first_row=a, end_row=b) for a, b in pairwise(cuts))
        assert np.array_equal(bits(parts), bits(whole))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_stay_inside_the_mapping(isa: str, mode: str, dtype: int) -> None:
    for cols in (32, 96, 160, 576) + (() if dtype in GROUPED else (1, 33, 250, 271)):
        for m in (1, 3, 9):
            matrix, x = random_matrix(dtype, 5, cols), activations(m, cols)
            guarded = op.Matrix(dtype, at_page_end(matrix.payload), 5, cols)
            y = op.linear(guarded, x, isa=isa, mode=mode)
            assert np.array_equal(bits(y), bits(op.linear(matrix, x, isa=isa, mode=mode)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", INT8)
@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("m", [1, 2, 6, 9])
def test_largest_sums(isa: str, dtype: int, high: bool, m: int) -> None:
    rng = np.random.default_rng(m)
    matrix = extreme_matrix(dtype, 9, 576, high)
    for x in (np.ones((m, 576)), -np.ones((m, 576)), rng.choice([-1.0, 1.0], (m, 576))):
        x = x.astype(np.float32)
        x[:, 1::2] *= rng.choice([-1, 1])
        assert np.array_equal(bits(op.linear(matrix, x, isa=isa)), bits(op.reference(matrix, x)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_tiny_inputs(isa: str, dtype: int) -> None:
    matrix = random_matrix(dtype, 20, 96)
    x = activations(4, 96)
    x[0] = 0
    x[1] = -0.0
    x[2] *= np.float32(1e-32)
    x[3, 32:64] = 0
    for m in (1, 4):
        assert np.array_equal(bits(op.linear(matrix, x[:m], isa=isa)), bits(op.reference(matrix, x[:m])))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_non_finite_input_shows(isa: str, dtype: int, bad: float) -> None:
    matrix, x = random_matrix(dtype, 4, 96), activations(3, 96)
    x[1, 40] = bad
    y = op.linear(matrix, x, isa=isa)
    assert np.isfinite(y[[0, 2]]).all()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("cols", [1, 31, 32, 33, 300, 896])
def test_quantized_activations(isa: str, cols: int) -> None:
    x = activations(5, cols)
    x[1] = 0
    x[2] *= np.float32(1e-33)
    x[3] = np.round(x[3] * 4) / 8
    q, scale = op.quantize(x)
    expected = (q.astype(np.float32) * scale[..., None]).reshape(5, -1)[:, :cols]
    assert np.array_equal(bits(native.quantize_dequantize(isa, x) + 0.0), bits(expected + 0.0))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(isa: str, dtype: int) -> None:
    matrix = random_matrix(dtype, 7, 160)
    identity = np.eye(160, dtype=np.float32)
    for row in (0, 3, 6):
        expected = op.linear(matrix, identity, isa=isa, mode="exact")[:, row]
        assert np.array_equal(op.gather(matrix, row, isa=isa), expected)


def test_error_against_exact_mode() -> None:
    """Fast mode quantizes activations to 8 bits: about one part in a hundred of the result's natural size."""
    for dtype in INT8:
        matrix, x = random_matrix(dtype, 64, 896), activations(8, 896)
        exact = op.linear(matrix, x, isa=ISAS[-1], mode="exact")
        error = np.abs(op.linear(matrix, x, isa=ISAS[-1]) - exact)
        assert np.sqrt((error**2).mean()) < 0.015 * np.sqrt((exact**2).mean())


def test_refusals() -> None:
    matrix, x = random_matrix(Q4_TILED, 4, 64), activations(1, 64)
    with pytest.raises(UsageError, match="unknown instruction set"):
        op.linear(matrix, x, isa="mmx")
    with pytest.raises(UsageError, match="mode"):
        op.linear(matrix, x, isa="scalar", mode="slow")
    with pytest.raises(UnsupportedFeature):
        op.linear(op.Matrix(6, matrix.payload, 4, 64), x, isa="scalar")
    with pytest.raises(Bounds, match="72 bytes"):
        op.linear(op.Matrix(Q4_TILED, matrix.payload, 1, 128), activations(1, 128), isa="scalar")
    with pytest.raises(Bounds, match="multiple of 32"):
        op.linear(op.Matrix(Q4_TILED, matrix.payload, 4, 63), activations(1, 63), isa="scalar")
    with pytest.raises(Bounds):
        op.linear(op.Matrix(0, b"", 2**40, 2**40), x, isa="scalar")
    with pytest.raises(ShapeMismatch):
        op.linear(matrix, activations(1, 32), isa="scalar")
    with pytest.raises(Bounds):
        op.linear(matrix, x, isa="scalar", first_row=2, end_row=5)
    with pytest.raises(Bounds):
        op.gather(matrix, 4, isa="scalar")


@pytest.mark.parametrize("isa", ISAS)
def test_dtypes_without_kernels_are_known_by_name(isa: str) -> None:
    assert {layout(dtype).name for dtype in SLOW} <= set(op.slow_dtypes(isa))
    assert not {layout(dtype).name for dtype in FAST} & set(op.slow_dtypes(isa))


@pytest.mark.parametrize("dtype", SLOW)
def test_both_modes_are_one_for_dtypes_without_kernels(dtype: int) -> None:
    matrix, x = random_matrix(dtype, 9, 64), activations(3, 64)
    fast, exact = (op.linear(matrix, x, isa=ISAS[-1], mode=mode) for mode in ("fast", "exact"))
    assert np.array_equal(bits(fast), bits(exact))


@pytest.mark.parametrize(("dtype", "at", "code"), [(13, -6, "q1s_index"), (14, 9 * 8, "q1t_row_ptr")])
def test_outliers_that_lead_astray_are_refused(dtype: int, at: int, code: str) -> None:
    matrix = random_matrix(dtype, 4, 64)
    data = bytearray(matrix.payload)
    begin = len(data) + at if at < 0 else at
    data[begin : begin + 4] = b"\xff\xff\xff\xff"
    bad = op.Matrix(dtype, bytes(data), 4, 64)
    with pytest.raises(Bounds, match=code):
        op.linear(bad, activations(1, 64), isa="scalar")
    with pytest.raises(Bounds, match=code):
        op.gather(bad, 0, isa="scalar")
    for isa in ISAS:  # and the core stays inside the payload whatever it says
        guarded = at_page_end(bytes(data))
        native.linear(isa, "fast", dtype, guarded, 4, 64, activations(1, 64))
