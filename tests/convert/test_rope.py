"""Scaled rotary embeddings: what the reader makes of the header equals transformers' definition of each kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cortiq.container.arch import Arch, read_arch
from cortiq.convert.rope import RopeContext, scaling_fields
from cortiq.errors import SourceError, UnsupportedArch
from cortiq.model.rope_table import global_rope

HEAD_DIM = 64
MAX_POSITIONS = 4096
Frequencies = NDArray[np.float64]


def arch(theta: float, **scaled: Any) -> Arch:
    fields = {
        "arch_name": "llama", "hidden_size": 128, "intermediate_size": 256, "num_layers": 1, "num_attention_heads": 2,
        "num_kv_heads": 2, "head_dim": HEAD_DIM, "vocab_size": 32, "layer_types": ["FullAttention"],
        "rms_norm_eps": 1e-6, "max_position_embeddings": MAX_POSITIONS, "rope_theta": theta,
    }  # fmt: skip
    return read_arch(fields | scaled, 0)


def written(table: dict[str, Any], theta: float = 10000.0) -> dict[str, Any]:
    return scaling_fields(table, RopeContext(theta, HEAD_DIM, MAX_POSITIONS), "config.json rope_parameters")


def plain(theta: float) -> Frequencies:
    return 1.0 / theta ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)


def llama3(table: dict[str, Any], theta: float) -> Frequencies:
    inverse = plain(theta)
    low = table["original_max_position_embeddings"] / table["low_freq_factor"]
    high = table["original_max_position_embeddings"] / table["high_freq_factor"]
    out = []
    for frequency in inverse:
        wave = 2 * math.pi / frequency
        if wave < high:
            out.append(frequency)
        elif wave > low:
            out.append(frequency / table["factor"])
        else:
            turns = table["original_max_position_embeddings"] / wave
            smooth = (turns - table["low_freq_factor"]) / (table["high_freq_factor"] - table["low_freq_factor"])
            out.append((1 - smooth) * frequency / table["factor"] + smooth * frequency)
    return np.array(out)


def yarn(table: dict[str, Any], theta: float) -> Frequencies:
    original = table.get("original_max_position_embeddings", MAX_POSITIONS)

    def dim(rotations: float) -> float:
        return HEAD_DIM * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dim(table.get("beta_fast", 32)), dim(table.get("beta_slow", 1))
    if table.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, HEAD_DIM - 1)
    if low == high:
        high += 0.001
    keep = 1 - np.clip((np.arange(HEAD_DIM // 2) - low) / (high - low), 0, 1)
    inverse = plain(theta)
    return inverse / table["factor"] * (1 - keep) + inverse * keep


LLAMA3 = [
    ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, 5e5),
    ({"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, 1e4),
    ({"factor": 2.5, "low_freq_factor": 0.5, "high_freq_factor": 20, "original_max_position_embeddings": 1000}, 3e3),
]
YARN = [
    ({"factor": 4.0, "original_max_position_embeddings": 32768}, 1e6),
    ({"factor": 4.0, "original_max_position_embeddings": 64}, 1e4),
    ({"factor": 16.0}, 1e4),
    ({"factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "original_max_position_embeddings": 2048}, 1e5),
    ({"factor": 8.0, "truncate": False, "original_max_position_embeddings": 2048}, 1e5),
    ({"factor": 4.0, "original_max_position_embeddings": 1000000}, 1e4),  # the ramp ends beyond the last pair
    ({"factor": 4.0, "beta_fast": 1.001, "original_max_position_embeddings": 20}, 1e4),
    ({"factor": 4.0, "beta_fast": 2.0, "truncate": False, "original_max_position_embeddings": 6}, 1e4),
]


@pytest.mark.parametrize(("table", "theta"), LLAMA3)
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_llama3(table: dict[str, Any], theta: float, key: str) -> None:
    fields = written({key: "llama3", **table}, theta)
    rope = global_rope(arch(theta, **fields))
    np.testing.assert_allclose(rope.inverse_frequencies, llama3(table, theta), rtol=1e-6)
    assert rope.attention_factor == 1.0


@pytest.mark.parametrize(("table", "theta"), YARN)
def test_yarn(table: dict[str, Any], theta: float) -> None:
    fields = written({"rope_type": "yarn", **table}, theta)
    rope = global_rope(arch(theta, **fields))
    np.testing.assert_allclose(rope.inverse_frequencies, yarn(table, theta), rtol=1e-6)
    assert rope.attention_factor == pytest.approx(0.1 * math.log(table["factor"]) + 1)


ATTENTION = [
    ({"attention_factor": 1.25}, 1.25),
    ({"attention_factor": None}, 0.1 * math.log(40) + 1),
    ({"mscale": 1.0}, 0.1 * math.log(40) + 1),
    ({"mscale": 0.707, "mscale_all_dim": 1.0}, (0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1)),
    ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
]


@pytest.mark.parametrize(("given", "expected"), ATTENTION)
def test_attention_factor_of_yarn(given: dict[str, Any], expected: float) -> None:
    fields = written({"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, **given})
    assert fields["yarn"]["attention_factor"] == pytest.approx(expected)


def test_yarn_lengthens_the_context() -> None:
    table = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    assert written(table)["max_position_embeddings"] == 16384
    assert written({**table, "original_max_position_embeddings": 64})["max_position_embeddings"] == MAX_POSITIONS


def test_linear_and_default() -> None:
    assert written({"rope_type": "linear", "factor": 2.0}) == {"rope_freq_factors": [2.0] * (HEAD_DIM // 2)}
    assert written({"type": "linear", "factor": 1}) == {}
    assert written({"rope_type": "default"}) == written({}) == written({"rope_theta": 1e6}) == {}


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope", "proportional", 3])
def test_other_kinds_are_refused(kind: object) -> None:
    with pytest.raises(UnsupportedArch, match=str(kind)):
        written({"rope_type": kind, "factor": 2.0})


@pytest.mark.parametrize(
    "table",
    [
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": 0},
        {"rope_type": "linear", "factor": "4"},
        {"rope_type": "linear", "factor": float("inf")},
        {"rope_type": "yarn"},
        {"rope_type": "yarn", "factor": 4.0, "truncate": 1},
        {"rope_type": "llama3", **LLAMA3[0][0], "low_freq_factor": 4.0},
        {"rope_type": "llama3", **LLAMA3[0][0], "original_max_position_embeddings": 8192.5},
    ],
)
def test_values_that_cannot_be_meant(table: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="config"):
        written(table)


def test_unknown_keys_are_all_named() -> None:
    with pytest.raises(UnsupportedArch, match="mrope_section, short_factor"):
        written({"rope_type": "default", "short_factor": [1.0], "mrope_section": [1, 2]})
