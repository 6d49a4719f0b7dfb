"""Blocks of rows make the payload of the whole tensor, whatever an encoder has to know first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.weights import heavy_tailed
from cortiq.convert import ConvertOptions
from cortiq.convert.encode import EncodePool
from cortiq.convert.families import TensorRule
from cortiq.convert.plan import Planned, take_survey
from cortiq.convert.source import Block, SourceTensor
from cortiq.errors import NonFinite
from cortiq.layouts import layout

pytest.importorskip("cortiq._native", reason="the native core is not built")

QUANTS = ("q8_row", "q4_tiled", "q4_block", "q8_2f", "q1", "q1p", "q1s", "q1t")


class ArrayTensor(SourceTensor):
    """A tensor in memory that notes what was read of it."""

    __slots__ = ("largest", "values")

    def __init__(self, name: str, values: NDArray[Any]) -> None:
        super().__init__(name, f"source.{name}", values.shape, values.nbytes, TensorRule(name, "", ""))
        self.values = values
        self.largest = 0

    def read(self, first: int, last: int) -> Block:
        self.largest = max(self.largest, last - first)
        return self.values[first:last]

    def release(self, first: int, last: int) -> None:
        assert 0 <= first <= last <= len(self.values)


def planned(quant: str, tensor: ArrayTensor) -> Planned:
    kind = layout(quant)
    survey = take_survey(tensor, quant)
    nbytes = kind.encoded_nbytes(tensor.shape, survey)
    return Planned(tensor, quant, nbytes, survey=None if kind.exact_size else survey)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 400)
    monkeypatch.setattr("cortiq.layouts.q1s._SURVEY_WEIGHTS", 400)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("quant", QUANTS)
def test_payloads_of_two_tensors(quant: str, threads: int) -> None:
    cols = 36 if quant in ("q4_block", "q8_2f", "q8_row") else 64
    entries = [planned(quant, ArrayTensor(str(rows), heavy_tailed(rows, cols, seed=rows))) for rows in (75, 300)]
    with EncodePool(entries, ConvertOptions(threads=threads), None) as pool:
        for entry in entries:
            payload = b"".join(chunk.tobytes() for chunk in pool.chunks(entry))
            assert len(payload) == entry.nbytes
            assert payload == layout(quant).encode(entry.tensor.read(0, 300))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("quant", ["q8_2f", "q1s"])
def test_a_survey_reads_blocks(quant: str) -> None:
    tensor = ArrayTensor("t", heavy_tailed(600, 64))
    take_survey(tensor, quant)
    assert tensor.largest <= 256


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_weight_that_cannot_be_stored_is_named(quant: str, bad: float) -> None:
    values = heavy_tailed(75, 64)
    values[41, 3] = bad
    entry = planned(quant, ArrayTensor("t", values))
    with (
        EncodePool([entry], ConvertOptions(threads=2), None) as pool,
        pytest.raises(NonFinite, match=r"\[41, 3\]") as caught,
    ):
        list(pool.chunks(entry))
    assert caught.value.tensor == "source.t"
