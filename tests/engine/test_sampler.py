"""The native sampler against the same chain written in NumPy, and its promises: ties, seeds, instruction sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cortiq import _native
from cortiq.engine.sampler import Sampler, SamplingParams
from cortiq.errors import NonFinite, ShapeMismatch, UsageError

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

CHAINS: list[dict[str, Any]] = [
    {"temperature": 1.0, "top_p": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 0.999},
    {"temperature": 2.0, "top_p": 0.5},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    {"temperature": 1.3, "top_k": 7, "top_p": 1.0},
    {"temperature": 1.0, "top_p": 1.0, "min_p": 0.05},
    {"temperature": 1.0, "top_p": 0.98, "min_p": 0.01},
    {"temperature": 1.5, "top_k": 30, "top_p": 0.9, "min_p": 0.1},
    {"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25},
    {"temperature": 1.0, "top_k": 20, "top_p": 1.0, "logit_bias": {3: 5.0, 4: -math.inf}},
]


def penalized(logits: F32, params: SamplingParams, prompt: list[int], generated: list[int]) -> F64:
    """Step 1 of the chain."""
    out = logits.astype(np.float64)
    for token, bias in params.logit_bias.items():
        out[token] += bias
    for token in set(prompt) | set(generated):
        out[token] = (
            out[token] / params.repetition_penalty if out[token] > 0 else out[token] * params.repetition_penalty
        )
    for token in set(generated):
        out[token] -= params.presence_penalty + params.frequency_penalty * generated.count(token)
    return out


def distribution(logits: F64, params: SamplingParams) -> F64:
    """Steps 2 to 5: the probabilities the uniform number is held against."""
    order = np.lexsort((np.arange(logits.size), -logits))
    scaled = logits / params.temperature
    weights = np.exp(scaled - scaled.max())
    kept = order[: params.top_k] if params.top_k else order
    if params.top_p < 1:
        reached = np.cumsum(weights[kept]) >= params.top_p * weights[kept].sum()
        kept = kept[: int(np.argmax(reached)) + 1]
    kept = kept[weights[kept] >= params.min_p]
    out = np.zeros_like(weights)
    out[kept] = weights[kept] / weights[kept].sum()
    return out


def uniform(seed: int, position: int) -> float:
    """The number behind a draw."""

    def scramble(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    golden = 0x9E3779B97F4A7C15
    key = scramble((seed + golden) % 2**64)
    return (scramble((key + (position + 1) * golden) % 2**64) >> 11) / 2**53


def native(vocab: int, params: SamplingParams, isa: str) -> _native.Sampler:
    names = [name for name in params.__dataclass_fields__ if name not in ("logit_bias", "seed")]
    return _native.Sampler(
        vocab,
        seed=params.seed or 0,
        logit_bias=list(params.logit_bias.items()),
        isa=isa,
        **{name: getattr(params, name) for name in names},
    )


@pytest.mark.parametrize("vocab", [5, 63, 64, 1000, 40_000])
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_chain_equals_numpy(chain: dict[str, Any], vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    params = SamplingParams(seed=7, **chain)
    sampler = Sampler(vocab, params)
    prompt = [1, 2, 2]
    sampler.accept_prompt(prompt)
    generated: list[int] = []
    for step in range(12):
        logits = (rng.standard_normal(vocab) * rng.choice([0.3, 2.0, 6.0])).astype(np.float32)
        token, logprob, top = sampler.sample(logits)
        assert math.isnan(logprob)
        assert top == []
        probabilities = distribution(penalized(logits, params, prompt, generated), params)
        assert probabilities[token] > 0
        edge = float(np.cumsum(probabilities)[token])
        target = uniform(7, len(prompt) + step)
        assert edge - probabilities[token] - 2e-6 <= target <= edge + 2e-6
        sampler.accept(token)
        generated.append(token)


@pytest.mark.parametrize("isa", _native.supported_isas())
@pytest.mark.parametrize("chain", [{"temperature": 0.0}, *CHAINS], ids=str)
def test_every_instruction_set_draws_the_same(chain: dict[str, Any], isa: str) -> None:
    rng = np.random.default_rng(11)
    params = SamplingParams(seed=3, logprobs=4, **chain)
    one, other = native(5003, params, isa), native(5003, params, "scalar")
    for _ in range(40):
        logits = (rng.standard_normal(5003) * 3).astype(np.float32)
        mine, theirs = one.sample(logits), other.sample(logits)
        assert mine == theirs
        one.accept(mine[0])
        other.accept(theirs[0])


@pytest.mark.parametrize("vocab", [1, 64, 65, 129, 4099])
def test_greedy_takes_the_lowest_of_equal_logits(vocab: int) -> None:
    sampler = Sampler(vocab, SamplingParams(temperature=0.0))
    assert sampler.sample(np.zeros(vocab, np.float32))[0] == 0
    for high in {0, vocab // 3, vocab - 1}:
        logits = np.full(vocab, -1.0, np.float32)
        logits[high] = 2.0
        logits[vocab - 1] = 2.0
        assert sampler.sample(logits)[0] == high


def test_top_k_of_equal_logits_keeps_the_lowest_ids() -> None:
    sampler = Sampler(10_000, SamplingParams(temperature=1.0, top_k=3, top_p=1.0, seed=1))
    drawn = set()
    for position in range(200):
        sampler.position = position
        drawn.add(sampler.sample(np.zeros(10_000, np.float32))[0])
    assert drawn == {0, 1, 2}


def test_flat_top_p_keeps_the_share_it_names() -> None:
    vocab = 20_000
    sampler = Sampler(vocab, SamplingParams(temperature=1.0, top_p=0.25, seed=1))
    drawn = []
    for position in range(400):
        sampler.position = position
        drawn.append(sampler.sample(np.zeros(vocab, np.float32))[0])
    assert max(drawn) < vocab // 4
    assert max(drawn) > vocab // 4 * 0.97


def test_logprobs_are_those_of_the_model() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal(3000) * 4).astype(np.float32)
    params = SamplingParams(temperature=0.4, top_k=3, repetition_penalty=1.5, seed=5, logprobs=6)
    sampler = Sampler(3000, params)
    sampler.accept_prompt(list(range(3000)))
    token, logprob, top = sampler.sample(logits)
    wide = logits.astype(np.float64)
    expected = wide - (wide.max() + np.log(np.exp(wide - wide.max()).sum()))
    assert logprob == pytest.approx(expected[token], abs=2e-6)
    order = np.argsort(-expected)[:6]
    assert [i for i, _ in top] == order.tolist()
    assert [p for _, p in top] == pytest.approx(expected[order], abs=2e-6)


def test_more_logprobs_than_tokens_reports_all() -> None:
    top = Sampler(4, SamplingParams(logprobs=20)).sample(np.arange(4, dtype=np.float32))[2]
    assert [i for i, _ in top] == [3, 2, 1, 0]
    assert sum(math.exp(p) for _, p in top) == pytest.approx(1, abs=1e-6)


def test_frequencies_follow_the_distribution() -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    sampler = Sampler(4, SamplingParams(temperature=1.0, top_p=1.0, seed=99))
    counts = np.zeros(4)
    for position in range(20_000):
        sampler.position = position
        counts[sampler.sample(np.log(probabilities).astype(np.float32))[0]] += 1
    assert np.abs(counts / 20_000 - probabilities).max() < 0.012


def test_same_seed_same_tokens_and_replay() -> None:
    rng = np.random.default_rng(2)
    rows = [(rng.standard_normal(500) * 2).astype(np.float32) for _ in range(20)]

    def run(seed: int) -> list[int]:
        sampler = Sampler(500, SamplingParams(seed=seed))
        out = []
        for row in rows:
            out.append(sampler.sample(row)[0])
            assert sampler.sample(row)[0] == out[-1]
            sampler.accept(out[-1])
        return out

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert Sampler(500, SamplingParams()).seed != Sampler(500, SamplingParams()).seed


def test_low_temperature_is_greedy_in_the_limit() -> None:
    logits = np.random.default_rng(4).standard_normal(999).astype(np.float32)
    for temperature in (1e-9, 1e-5, 1e-4):
        sampler = Sampler(999, SamplingParams(temperature=temperature, top_p=1.0, seed=0))
        assert sampler.sample(logits)[0] == int(logits.argmax())


def test_tokens_at_minus_infinity_are_never_drawn() -> None:
    logits = np.full(300, -np.inf, np.float32)
    logits[[17, 250]] = 1.0
    for chain in CHAINS[:9]:
        sampler = Sampler(300, SamplingParams(seed=8, **chain))
        for position in range(50):
            sampler.position = position
            assert sampler.sample(logits)[0] in (17, 250)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 63, 64, 99])
def test_broken_logits_are_an_error(bad: float, at: int) -> None:
    logits = np.zeros(100, np.float32)
    logits[at] = bad
    with pytest.raises(NonFinite):
        Sampler(100, SamplingParams(temperature=0.0)).sample(logits)


def test_no_finite_logit_is_an_error() -> None:
    with pytest.raises(NonFinite):
        Sampler(100, SamplingParams()).sample(np.full(100, -np.inf, np.float32))


def test_wrong_number_of_logits() -> None:
    with pytest.raises(ShapeMismatch):
        Sampler(100, SamplingParams()).sample(np.zeros(99, np.float32))


def test_tokens_outside_the_vocabulary() -> None:
    with pytest.raises(UsageError):
        Sampler(10, SamplingParams()).accept(10)
    with pytest.raises(UsageError):
        Sampler(10, SamplingParams(logit_bias={10: 1.0}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": True},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": math.inf},
        {"seed": -1},
        {"seed": 1 << 64},
        {"logprobs": -1},
        {"logprobs": 1 << 20},
        {"logit_bias": {0: math.nan}},
        {"logit_bias": {-1: 0.0}},
    ],
    ids=str,
)
def test_parameters_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SamplingParams(**wrong)


@pytest.mark.parametrize("every", [64, 1 << 20])
@pytest.mark.parametrize("vocab", [700, 2000, 20000])
@pytest.mark.parametrize("isa", _native.supported_isas())
def test_top_p_that_rounding_puts_out_of_reach_keeps_everything(isa: str, vocab: int, every: int) -> None:
    # Added to 1 in float, each of the small weights counts for too much: their exact sum never reaches what is wanted.
    logits = np.full(vocab, -14.0, np.float32)
    logits[::every] = 0.0
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    sampler = native(vocab, SamplingParams(temperature=1.0, top_p=below_one, seed=1), isa)
    everything = native(vocab, SamplingParams(temperature=1.0, top_p=1.0, seed=1), isa)
    for _ in range(50):
        token = sampler.sample(logits)[0]
        assert token == everything.sample(logits)[0]
        sampler.accept(token)
        everything.accept(token)
