"""Inverse frequencies from the header."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders.tiny import Tiny, arch_of
from cortiq.container.arch import Arch, read_arch
from cortiq.errors import Parse, UnsupportedArch
from cortiq.model.rope_table import global_rope, local_rope


def arch(**keys: Any) -> Arch:
    return read_arch(arch_of(Tiny(arch=keys)), 0)


def test_plain() -> None:
    rope = global_rope(arch(rope_theta=10000.0))
    expected = (10000.0 ** -(np.arange(8) / 8)).astype(np.float32)
    assert rope.inverse_frequencies == tuple(expected.tolist())
    assert (rope.attention_factor, rope.rotary_dim) == (1.0, 16)


def test_partial_rotation() -> None:
    rope = global_rope(arch(partial_rotary_factor=0.25, rope_theta=100.0))
    assert rope.inverse_frequencies == pytest.approx((1.0, 0.1))


def test_divisors_with_a_short_list() -> None:
    plain = np.array(global_rope(arch()).inverse_frequencies)
    divided = np.array(global_rope(arch(rope_freq_factors=[2.0, 4.0])).inverse_frequencies)
    np.testing.assert_allclose(plain / divided, [2, 4, 1, 1, 1, 1, 1, 1], rtol=1e-6)


def test_yarn_keeps_fast_dims_and_divides_slow_ones() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 4096, "attention_factor": 1.25}
    keys: dict[str, Any] = {"rope_theta": 10000.0}
    plain = np.array(global_rope(arch(**keys)).inverse_frequencies)
    rope = global_rope(arch(**keys, yarn=yarn))
    ratio = plain / np.array(rope.inverse_frequencies)
    assert ratio[0] == pytest.approx(1.0)
    assert ratio[-1] == pytest.approx(4.0, rel=1e-5)
    assert (np.diff(ratio) > -1e-5).all()
    assert rope.attention_factor == 1.25


def test_local_base_ignores_yarn_and_divisors() -> None:
    keys: dict[str, Any] = {
        "rope_local_base_freq": 100.0,
        "rope_freq_factors": [3.0],
        "yarn": {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.25},
    }
    rope = local_rope(arch(**keys), tagged=True)
    assert rope.attention_factor == 1.0
    np.testing.assert_allclose(rope.inverse_frequencies, 100.0 ** -(np.arange(8) / 8), rtol=1e-6)


def test_local_without_a_base_takes_the_global_frequencies_but_not_the_factor() -> None:
    given = arch(yarn={"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.25})
    assert local_rope(given, tagged=False).inverse_frequencies == global_rope(given).inverse_frequencies
    assert local_rope(given, tagged=False).attention_factor == 1.0


def test_local_fraction_counts_for_tagged_layers_only() -> None:
    given = arch(local_partial_rotary_factor=0.5, rope_local_base_freq=100.0)
    assert local_rope(given, tagged=True).rotary_dim == 8
    assert local_rope(given, tagged=False).rotary_dim == 16


def test_what_gives_no_frequencies() -> None:
    with pytest.raises(Parse, match="even"):
        global_rope(arch(partial_rotary_factor=0.2))
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64}
    with pytest.raises(Parse, match="rope_theta"):
        global_rope(arch(yarn=yarn, rope_theta=1.0))
    with pytest.raises(UnsupportedArch, match="mscale_all_dim"):
        global_rope(arch(yarn={**yarn, "mscale_all_dim": 1.0}))
