"""A row's logits depend on its own sequence only: not on chunks, batch mates, threads, or what ran before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cortiq.container
from builders.tiny import Tiny, write_tiny
from cortiq.engine.model import Model
from cortiq.model.loader import LoadedPlan, PlanOptions, build_plan

SHAPE = Tiny(
    matrix="q4_tiled",
    layers=3,
    qk_norm=True,
    qkv_bias=True,
    arch={"sliding_window": 12, "sliding_window_pattern": 3, "rope_local_base_freq": 100.0},
)
TOKENS = [(97 * i + 5) % 512 for i in range(150)]
Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cortiq.container.File]:
    with cortiq.container.open(write_tiny(tmp_path_factory.mktemp("model") / "m.cmf", SHAPE)) as file:
        yield file


@pytest.fixture(scope="module", params=["fast", "exact"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def loaded(file: cortiq.container.File, mode: str) -> LoadedPlan:
    return build_plan(file, PlanOptions(mode=mode, threads=2, max_tokens=160, max_sequences=3))


@pytest.fixture(scope="module")
def expected(file: cortiq.container.File, mode: str) -> Logits:
    with Model(file, PlanOptions(mode=mode, threads=1)) as model:
        return model.forward(TOKENS)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [1, 7, 33, 160])
def test_chunks_and_threads_do_not_matter(
    file: cortiq.container.File, mode: str, expected: Logits, threads: int, max_tokens: int
) -> None:
    with Model(file, PlanOptions(mode=mode, threads=threads, max_tokens=max_tokens)) as model:
        assert np.array_equal(model.forward(TOKENS), expected)


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512"])
def test_the_instruction_set_does_not_matter(
    file: cortiq.container.File, mode: str, expected: Logits, isa: str
) -> None:
    from cortiq import _native

    if isa not in _native.supported_isas():
        pytest.skip(f"this processor has no {isa}")
    with Model(file, PlanOptions(mode=mode, threads=2, isa=isa)) as model:
        assert np.array_equal(model.forward(TOKENS[:40]), expected[:40])


def test_decoding_gives_what_a_prompt_gives(file: cortiq.container.File, mode: str, expected: Logits) -> None:
    with Model(file, PlanOptions(mode=mode, threads=2)) as model, model.runner.sequence() as sequence:
        assert np.array_equal(sequence.prefill(TOKENS[:100]), expected[99])
        for i in range(100, 130):
            assert np.array_equal(sequence.decode(TOKENS[i]), expected[i])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_batch_mates_do_not_matter(loaded: LoadedPlan, expected: Logits, data: st.DataObject) -> None:
    """Three sequences of prefixes of the same text advance by ragged counts, each row compared with the lone run."""
    plan = loaded.plan
    handles = [plan.new_sequence() for _ in range(3)]
    done = [0, 0, 0]
    try:
        for _ in range(data.draw(st.integers(1, 6))):
            counts = [data.draw(st.integers(0, min(40, len(TOKENS) - n))) for n in done]
            rows = [i for i, count in enumerate(counts) if count]
            if not rows:
                continue
            tokens = [token for i in rows for token in TOKENS[done[i] : done[i] + counts[i]]]
            wanted = np.array([data.draw(st.booleans()) for _ in tokens], np.uint8)
            out = np.empty((len(tokens), 512), np.float32)
            written = plan.step(
                np.array([handles[i] for i in rows], np.int32),
                np.array([counts[i] for i in rows], np.int32),
                np.array(tokens, np.int32),
                wanted,
                out,
            )
            positions = [done[i] + k for i in rows for k in range(counts[i])]
            chosen = [position for position, take in zip(positions, wanted, strict=True) if take]
            assert written == len(chosen)
            assert np.array_equal(out[:written], expected[chosen])
            for i in rows:
                done[i] += counts[i]
    finally:
        for handle in handles:
            plan.free_sequence(handle)
