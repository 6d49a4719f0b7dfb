"""The NumPy forward pass against logits of transformers, and its parts against their equations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from builders.golden import FAMILIES, golden, max_relative_error
from cortiq.container.arch import read_arch
from cortiq.errors import UsageError
from cortiq.model import reference
from cortiq.model.capabilities import describe
from cortiq.model.facts import RopeFacts


@dataclass(frozen=True)
class Entry:
    dtype: int
    shape: tuple[int, ...]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_ids_of_transformers(family: str) -> None:
    source = golden(family)
    facts = describe(read_arch(source.arch, 0), {n: Entry(2, t.shape) for n, t in source.tensors.items()})
    logits = reference.forward(facts, source.tensors.__getitem__, source.input_ids)
    assert max_relative_error(logits, source.logits) < 1e-5
    ids = source.input_ids[: source.prompt_len] + source.greedy
    followed = reference.forward(facts, source.tensors.__getitem__, ids[:-1])[source.prompt_len - 1 :].argmax(-1)
    assert followed.tolist() == source.greedy


@pytest.mark.parametrize("tokens", [[], [-1], [512], [[1]]])
def test_ids_outside_the_vocabulary_are_refused(tokens: list[int]) -> None:
    source = golden("llama")
    facts = describe(read_arch(source.arch, 0), {n: Entry(2, t.shape) for n, t in source.tensors.items()})
    with pytest.raises(UsageError, match="tokens"):
        reference.forward(facts, source.tensors.__getitem__, tokens)


def test_rotation_is_that_of_complex_numbers_and_leaves_the_tail() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 3, 10)).astype(np.float32)
    rope = RopeFacts((1.0, 0.5, 0.25), 1.5)
    y = reference.rotate(x, rope)
    turn = 1.5 * np.exp(1j * np.arange(5)[:, None, None] * np.array([1.0, 0.5, 0.25]))
    expected = (x[..., :3] + 1j * x[..., 3:6]) * turn
    np.testing.assert_allclose(y[..., :3] + 1j * y[..., 3:6], expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(y[..., 6:], x[..., 6:])


def test_window_counts_the_position_itself() -> None:
    assert reference.visible(4, 2).astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert reference.visible(3, 0).sum() == 6


def test_activations_at_the_ends_of_the_range() -> None:
    x = np.array([-200.0, -1.0, 0.0, 1.0, 200.0], np.float32)
    np.testing.assert_allclose(reference.activate(x, "silu"), [0, -0.26894143, 0, 0.73105857, 200], atol=1e-7)
    np.testing.assert_allclose(reference.activate(x, "gelu_tanh"), [0, -0.15880801, 0, 0.841192, 200], atol=1e-6)


def test_cap_bounds_and_zero_is_none() -> None:
    x = np.array([-1e6, 0.1, 1e6], np.float32)
    np.testing.assert_allclose(reference.cap(x, 30.0), [-30, 0.0999996, 30], rtol=1e-5)
    assert reference.cap(x, 0.0) is x
