"""Values in blocks, and weights that are no finite numbers."""

from __future__ import annotations

import numpy as np
import pytest

from builders.cmf import F16, F32, Q4_TILED, Q8_ROW, U8, VBIT, Cmf, T, header, pattern
from cortiq.container import values, verify
from cortiq.container.values import check_values, row_blocks
from cortiq.errors import NativeMissing
from cortiq.layouts import layout


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [F32, F16, Q8_ROW, Q4_TILED])
def test_blocks_are_the_decoded_tensor(opened, monkeypatch, dtype, native):
    monkeypatch.setattr(values, "_BLOCK_WEIGHTS", 200)
    if not native:

        def missing(*_: object) -> None:
            raise NativeMissing("not built")

        monkeypatch.setattr(values.native_codecs, "decode_rows", missing)
    kind = layout(dtype)
    matrix = np.random.default_rng(1).standard_normal((10, 64)).astype(np.float32)
    file = opened(Cmf(header(), [T("t", dtype, (10, 64), kind.encode(matrix))]).build())
    blocks = list(row_blocks(file["t"]))
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    assert np.array_equal(np.concatenate(blocks), kind.decode(file["t"].raw, (10, 64)))


def test_d18_scales_that_are_no_numbers(opened):
    scales = np.array([1, np.nan, 1, np.inf], np.float16).tobytes()
    tensors = [
        T("nan", Q8_ROW, (4, 32), b"\x01" * 128 + scales),
        T("fine", Q8_ROW, (4, 32), b"\x01" * 128 + np.ones(4, np.float16).tobytes()),
        T("vector", F16, (3,), np.array([1, -np.inf, 2], np.float16).tobytes()),
        T("bytes", U8, (4,), pattern(4)),
        T("empty", F16, (0,), b""),
    ]
    file = opened(Cmf(header(), tensors).build())
    assert verify(file).ok
    report = verify(file, checks=[check_values])
    assert report.ok
    assert report.level == "deep"
    found = [(w.kind, w.tensor, w.found) for w in report.warnings if w.code == "value"]
    assert found == [("NonFinite.value", "nan", 64), ("NonFinite.value", "vector", 1)]
    assert "[1, 0]" in str(report.warnings[-2])
    assert not verify(file, checks=[check_values], strict=True).ok


def test_invalid_content_is_the_payloads_problem(opened):
    bits = bytes([3, 7, 4, 8])
    file = opened(Cmf(header(), [T("t", VBIT, (4, 32), bits + bytes(2 * 4 + 12 + 16 + 28 + 32))]).build())
    report = verify(file, checks=[check_values])
    assert [problem.kind for problem in report.problems] == ["Parse.vbit_bits"]


def test_scales_that_are_small_or_negative_are_no_finding(opened):
    for scale in (np.float16(-0.0), np.float16(2.0**-24), np.float16(-(2.0**-20))):
        payload = b"\x01" * 128 + np.full(4, scale, np.float16).tobytes()
        file = opened(Cmf(header(), [T("t", Q8_ROW, (4, 32), payload)]).build())
        report = verify(file, checks=[check_values], strict=True)
        assert report.ok, report.problems
