"""vbit, q4tp and q2tp against whole files the upstream implementation wrote and values it decoded."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cortiq
from builders.weights import golden_tensors
from cortiq.container.hash64 import hash64
from cortiq.layouts import Layout, layout, native
from cortiq.layouts.vbit import Vbit, row_amplitudes, widths_of_rows

DATA = Path(__file__).parents[1] / "data" / "layouts" / "cmf"
DECODED: dict[str, dict[str, str]] = json.loads((DATA / "hashes.json").read_text())["decoded"]
MEAN_BITS = {"ragged-vbit4_25": 4.25, "ragged-vbit5_5": 5.5, "ragged-py-vbit": 4.25}
OURS = {"vbit", "vbit_ro", "q4tp", "q2tp"}


@cache
def tensors(file: str) -> dict[str, tuple[Layout, tuple[int, ...], bytes]]:
    """Layout, shape and payload of the tensors this is about."""
    with cortiq.open(DATA / f"{file}.cmf") as opened:
        found = {name: (layout(opened[name].dtype), opened[name].shape, bytes(opened[name].raw)) for name in opened}
    return {name: entry for name, entry in found.items() if entry[0].name in OURS}


@cache
def sources() -> dict[str, NDArray[Any]]:
    return {tensor.name: tensor.source for tensor in golden_tensors()}


CASES = [(file, name) for file in DECODED for name in tensors(file)]


def test_the_files_have_what_this_is_about() -> None:
    kinds = {file: {kind.name for kind, _, _ in tensors(file).values()} for file in DECODED}
    assert kinds == {
        "ragged-vbit4_25": {"vbit_ro"},
        "ragged-vbit5_5": {"vbit_ro"},
        "ragged-py-vbit": {"vbit"},
        "ragged-q4tp": {"q4tp"},
        "ragged-q2tp": {"q4tp", "q2tp"},
    }


@pytest.mark.parametrize(("file", "name"), CASES)
def test_decoded_values_are_upstreams(file: str, name: str) -> None:
    kind, shape, payload = tensors(file)[name]
    assert f"{hash64(kind.decode(payload, shape).tobytes()):016x}" == DECODED[file][name]


@pytest.mark.parametrize(("file", "name"), CASES)
def test_plain_bytes_are_upstreams(file: str, name: str) -> None:
    kind, _, payload = tensors(file)[name]
    source = sources()[name].astype(np.float32)
    if isinstance(kind, Vbit):
        widths = widths_of_rows(row_amplitudes(source), MEAN_BITS[file])
        assert kind.encode(source, encoder="plain", widths=widths) == payload
    else:
        assert kind.encode(source, encoder="plain") == payload


@pytest.mark.parametrize(("file", "name"), CASES)
def test_native_bytes_are_upstreams(file: str, name: str, isa: str) -> None:
    kind, shape, payload = tensors(file)[name]
    decoded = native.decode(kind, payload, shape, isa=isa)
    assert f"{hash64(decoded.tobytes()):016x}" == DECODED[file][name]
    if file == "ragged-vbit5_5":
        return  # the encoder of one tensor has a budget of its own, 4.25 bits
    assert native.encode(kind, sources()[name], encoder="plain", isa=isa) == payload
