from __future__ import annotations

import numpy as np

from builders.weights import heavy_tailed
from cortiq.layouts import layout

Q82F = layout("q8_2f")


def test_fields_by_hand() -> None:
    values = np.array([[3.0, 0.0], [-3.0, 0.0]], np.float32)
    payload = Q82F.encode(values)
    field = np.array([3.0, 2.0**-14], "<f2")
    scale = np.float32(1 / 127).astype("<f2")
    assert payload == bytes([127, 0, 129, 0]) + scale.tobytes() * 2 + field.tobytes()


def test_a_loud_column_costs_the_others_nothing() -> None:
    values = heavy_tailed(64, 96)
    values[:, 5] *= 1000

    def error_of_the_rest(name: str) -> float:
        decoded = layout(name).decode(layout(name).encode(values), values.shape)
        return float(np.abs(np.delete(decoded - values, 5, axis=1)).max())

    assert error_of_the_rest("q8_2f") < 0.02 * error_of_the_rest("q8_row")


def test_the_survey_reads_blocks_of_256_rows() -> None:
    values, seen = heavy_tailed(600, 32), []

    def read(first: int, last: int) -> np.ndarray:
        seen.append((first, last))
        return values[first:last]

    field = Q82F.survey(read, 600, 32)
    assert seen == [(0, 256), (256, 512), (512, 600)]
    rms = np.sqrt((values.astype(np.float64) ** 2).mean(axis=0))
    np.testing.assert_allclose(field.view(np.float16), rms, rtol=2e-3)


def test_negative_extreme_is_not_used() -> None:
    quants = np.frombuffer(Q82F.encode(heavy_tailed(40, 64)), np.int8)[: 40 * 64]
    assert quants.min() >= -127
