"""A whole decoder through the plan against the NumPy forward pass."""

from __future__ import annotations

import numpy as np
import pytest

from builders.tiny_plan import Shape, TinyModel, run
from cortiq import _native

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 101, 75)]

SHAPES = {
    "plain": Shape(),
    "bias": Shape(bias=True, kv_heads=4),
    "gemma": Shape(
        act="gelu_tanh",
        plus_one=True,
        sandwich=True,
        qk_norm=True,
        attention_softcap=5.0,
        logit_softcap=3.0,
        embed_scale=8.0,
        windows=(8, 0, 33),
    ),
    "ragged": Shape(hidden=72, heads=3, kv_heads=1, head_dim=20, ffn=50, vocab=101),
    "mixed": Shape(dtypes=("q4_tiled", "q8_row", "f16", "bf16")),
    "folds": Shape(dtypes=("q8_2f", "q8_2f", "q8_row"), hidden=72, heads=3, kv_heads=1, head_dim=20, ffn=50),
}


@pytest.mark.parametrize("kv_dtype", ["f16", "f32"])
@pytest.mark.parametrize("name", SHAPES)
def test_exact_mode_matches_numpy(name: str, kv_dtype: str) -> None:
    model = TinyModel(SHAPES[name])
    expected = model.forward(TOKENS, kv_dtype=kv_dtype)
    plan = model.plan(isa=_native.best_isa(), threads=2, kv_dtype=kv_dtype)
    result = run(plan, model.shape.vocab, [(plan.new_sequence(), TOKENS)])
    assert np.abs(result - expected).max() < 3e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["mixed", "folds"])
def test_fast_mode_is_close(name: str) -> None:
    model = TinyModel(SHAPES[name])
    expected = model.forward(TOKENS)
    plan = model.plan(isa=_native.best_isa(), mode="fast")
    result = run(plan, model.shape.vocab, [(plan.new_sequence(), TOKENS)])
    error = np.abs(result - expected).max() / np.abs(expected).max()
    assert 1e-5 < error < 3e-2


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("name", ["mixed", "folds", "gemma"])
def test_every_isa_gives_the_same_bits(name: str, mode: str) -> None:
    model = TinyModel(SHAPES[name])
    results = []
    for isa in _native.supported_isas():
        plan = model.plan(isa=isa, mode=mode)
        results.append(run(plan, model.shape.vocab, [(plan.new_sequence(), TOKENS[:40])]))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
