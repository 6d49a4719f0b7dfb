from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import golden_tensors, heavy_tailed, put
from cortiq.errors import Bounds
from cortiq.layouts import layout, native
from cortiq.native import core
from cortiq.ops.linear import Matrix, gather, linear

Q1S = layout("q1s")
ROWS, COLS = 72, 96
COUNT = 6 * ROWS * COLS // 32
GOLDEN = next(t for t in golden_tensors() if t.dtype == Q1S.id and t.shape == (ROWS, COLS))


def outliers(*entries: tuple[int, float]) -> Callable[[bytes], bytes]:
    """The golden payload with other outliers."""

    def changed(payload: bytes) -> bytes:
        return payload[:COUNT] + struct.pack("<I", len(entries)) + b"".join(struct.pack("<Ie", *e) for e in entries)

    return changed


CASES = [
    ("count beyond", put(COUNT, "<I", 0xFFFFFFFF), Bounds, "q1s_count"),
    ("slack", lambda p: p + b"\0", Bounds, "q1s_count"),
    ("index", outliers((ROWS * COLS, 1.0)), Bounds, "q1s_index"),
]


@pytest.mark.parametrize(("what", "change", "error", "code"), CASES, ids=[case[0] for case in CASES])
def test_refused(what: str, change: Callable[[bytes], bytes], error: type[Exception], code: str) -> None:
    Q1S.validate(GOLDEN.payload, GOLDEN.shape)
    with pytest.raises(error, match=code):
        Q1S.validate(change(GOLDEN.payload), GOLDEN.shape)


def test_an_outlier_replaces_the_tile() -> None:
    before = Q1S.decode(outliers()(GOLDEN.payload), GOLDEN.shape)
    after = Q1S.decode(outliers((0, 3.0), (ROWS * COLS - 1, -0.25))(GOLDEN.payload), GOLDEN.shape)
    assert after[0, 0] == 3.0
    assert after[-1, -1] == -0.25
    assert (before != after).sum() == 2


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ([(7, 1.0), (7, 2.0)], [(7, 2.0)]),
        ([(700, 1.0), (6, 2.0), (95, 3.0)], [(6, 2.0), (95, 3.0), (700, 1.0)]),
        (
            [(9, 1.0), (5, 2.0), (9, 3.0), (5, 4.0), (ROWS * COLS - 1, 5.0)],
            [(5, 4.0), (9, 3.0), (ROWS * COLS - 1, 5.0)],
        ),
    ],
)
def test_outliers_in_any_order_the_last_one_counts(
    given: list[tuple[int, float]], same: list[tuple[int, float]]
) -> None:
    payload, wanted = outliers(*given)(GOLDEN.payload), outliers(*same)(GOLDEN.payload)
    Q1S.validate(payload, GOLDEN.shape)
    expected = Q1S.decode(wanted, GOLDEN.shape)
    np.testing.assert_array_equal(Q1S.decode(payload, GOLDEN.shape), expected)
    np.testing.assert_array_equal(Q1S.decode(bytes(Q1S.canonical(payload, GOLDEN.shape)), GOLDEN.shape), expected)
    np.testing.assert_array_equal(native.decode(Q1S, payload, GOLDEN.shape), expected)
    np.testing.assert_array_equal(native.decode_rows(Q1S, payload, GOLDEN.shape, 5, 9), expected[5:9])
    for isa in core.supported_isas():
        matrix = Matrix(Q1S.id, payload, ROWS, COLS)
        rows = [gather(matrix, row, isa=isa) for row in range(ROWS)]
        np.testing.assert_array_equal(rows, expected)
        x = np.eye(COLS, dtype=np.float32)
        np.testing.assert_array_equal(linear(matrix, x, isa=isa, mode="exact"), expected.T)


def test_the_usual_order_is_not_copied() -> None:
    for payload in (GOLDEN.payload, outliers()(GOLDEN.payload), outliers((7, 1.0))(GOLDEN.payload)):
        assert Q1S.canonical(payload, GOLDEN.shape) is payload


def test_one_weight_in_a_hundred_is_kept() -> None:
    values = heavy_tailed(50, 64)
    decoded = Q1S.decode(Q1S.encode(values), values.shape)
    largest = np.abs(values).reshape(-1).argsort()[-32:]
    np.testing.assert_array_equal(decoded.reshape(-1)[largest], values.astype(np.float16).reshape(-1)[largest])
    assert len(Q1S.encode(values)) == Q1S.payload_nbytes(values.shape) + 6 * 32


def test_weights_as_large_as_the_last_one_are_kept_too() -> None:
    values = heavy_tailed(4, 64)
    values[:, 10] = 5.0
    values[2, 3] = 9.0
    assert len(Q1S.encode(values)) == Q1S.payload_nbytes(values.shape) + 6 * 5


def test_a_small_tensor_has_no_outliers() -> None:
    assert len(Q1S.encode(heavy_tailed(1, 32))) == Q1S.payload_nbytes((1, 32))


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_the_threshold_is_that_of_sorting(rows: int) -> None:
    for values in (
        heavy_tailed(rows, 96, seed=rows),
        np.round(heavy_tailed(rows, 96), 2),
        np.zeros((rows, 96), np.float32),
    ):
        survey = Q1S.survey(lambda first, last, values=values: values[first:last], rows, 96)  # type: ignore[misc]
        threshold = np.sort(np.abs(values).reshape(-1))[values.size - int(values.size * 0.01 + 0.5)]
        assert survey["threshold"][0] == threshold
        assert survey["count"][0] == (np.abs(values) >= threshold).sum()


@pytest.mark.parametrize(
    ("entries", "odd"),
    [([], False), ([(3, 1.0), (4, 1.0)], False), ([(4, 1.0), (3, 1.0)], True), ([(3, 1.0), (3, 1.0)], True)],
)
def test_another_order_is_odd(entries: list[tuple[int, float]], odd: bool) -> None:
    found = [error.kind for error in Q1S.oddities(outliers(*entries)(GOLDEN.payload), GOLDEN.shape)]
    assert found == ["Parse.q1s_order"] * odd
