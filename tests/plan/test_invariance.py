"""A row's logits are a function of its sequence alone: not of batch mates, chunks or threads. Bit for bit."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from builders.tiny_plan import Shape, TinyModel, run
from cortiq import _native

VOCAB = 101
SHAPES = (
    Shape(dtypes=("q4_tiled", "q8_row", "f16"), windows=(0, 40, 8)),
    Shape(dtypes=("q8_row",), sandwich=True, qk_norm=True, plus_one=True, heads=7, kv_heads=1, windows=(33, 0)),
    Shape(dtypes=("q8_2f", "q4_tiled", "q8_2f", "q8_2f", "q8_row"), sandwich=True, windows=(0, 20)),
    Shape(hidden=96, head_dim=24, ffn=160, bias=True, attention_softcap=4.0, windows=(0,)),
)
PROMPTS = [[int(t) for t in np.random.default_rng(i).integers(0, VOCAB, 90 - 17 * i)] for i in range(4)]


@lru_cache(maxsize=32)
def plan(shape: int, mode: str, threads: int) -> _native.Plan:
    return TinyModel(SHAPES[shape]).plan(isa=_native.best_isa(), mode=mode, threads=threads)


@lru_cache(maxsize=32)
def alone(shape: int, mode: str, prompt: int) -> NDArray[np.float32]:
    """Logits of a prompt on one thread, token by token."""
    p = plan(shape, mode, 1)
    s = p.new_sequence()
    rows = [run(p, VOCAB, [(s, [token])]) for token in PROMPTS[prompt]]
    p.free_sequence(s)
    return np.concatenate(rows)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shape=st.integers(0, len(SHAPES) - 1),
    mode=st.sampled_from(["fast", "exact"]),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_any_schedule_gives_the_same_bits(shape: int, mode: str, threads: int, data: st.DataObject) -> None:
    p = plan(shape, mode, threads)
    count = data.draw(st.integers(1, len(PROMPTS)), label="sequences")
    handles = [p.new_sequence() for _ in range(count)]
    try:
        rows = scheduled(p, handles, data)
    finally:
        for handle in handles:
            p.free_sequence(handle)
    for i, logits in enumerate(rows):
        np.testing.assert_array_equal(logits, alone(shape, mode, i))


def scheduled(p: _native.Plan, handles: list[int], data: st.DataObject) -> list[NDArray[np.float32]]:
    """Logits of one prompt per handle, run in steps of drawn composition."""
    count = len(handles)
    got: list[list[NDArray[np.float32]]] = [[] for _ in handles]
    done = [0] * count
    while any(done[i] < len(PROMPTS[i]) for i in range(count)):
        batch, parts = [], []
        for i in data.draw(st.permutations(range(count)), label="order"):
            left = min(len(PROMPTS[i]) - done[i], 128 - sum(n for _, n in parts))
            if left == 0:
                continue
            n = data.draw(st.integers(1, left), label="chunk")
            batch.append((handles[i], PROMPTS[i][done[i] : done[i] + n]))
            parts.append((i, n))
            done[i] += n
        logits = run(p, VOCAB, batch)
        for i, n in parts:
            got[i].append(logits[:n])
            logits = logits[n:]
    return [np.concatenate(parts) for parts in got]


@pytest.mark.parametrize("threads", [1, 2])
def test_wanted_rows_are_those_of_a_full_pass(threads: int) -> None:
    p = plan(0, "fast", threads)
    for wanted in ([0], [89], [3, 40, 41], list(range(90)), []):
        s = p.new_sequence()
        marks = [int(i in wanted) for i in range(90)]
        logits = run(p, VOCAB, [(s, PROMPTS[0])], wanted=marks)
        p.free_sequence(s)
        np.testing.assert_array_equal(logits, alone(0, "fast", 0)[wanted])


def test_many_threads() -> None:
    p = plan(1, "fast", 9)
    s = p.new_sequence()
    np.testing.assert_array_equal(run(p, VOCAB, [(s, PROMPTS[0])]), alone(1, "fast", 0))
