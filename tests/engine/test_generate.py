"""Generating: limits, stop ids and strings, streams, log-probabilities, interrupts, sharing between threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cortiq
from builders.tiny import Tiny, tokenizer_json, write_tiny
from cortiq.errors import UsageError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    header = {"tokenizer_config": {"eos_token_ids": [2]}}
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.cmf", header=header, tokenizer=tokenizer_json())


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[cortiq.Model]:
    with cortiq.load(path, mode="exact", threads=1, max_sequences=2) as model:
        yield model


def test_greedy_follows_the_highest_logit(model: cortiq.Model) -> None:
    ids = model.tokenize("Hello")
    got = model.generate("Hello", temperature=0, max_tokens=8, ignore_eos=True)
    for token in got.tokens:
        assert int(model.forward(ids)[-1].argmax()) == token
        ids.append(token)
    assert (got.finish_reason, got.prompt_tokens) == ("length", len(ids) - 8)
    assert got.text == model.detokenize(got.tokens)
    assert got.timings.generated_tokens == 8
    assert got.timings.decode_per_second > 0


def test_a_seed_gives_the_same_again(model: cortiq.Model) -> None:
    runs = [model.generate("Hello", seed=seed, max_tokens=12, temperature=1.5).tokens for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_stop_id_ends_and_is_counted_but_not_shown(path: Path, model: cortiq.Model) -> None:
    free = model.generate([5, 6, 7], temperature=0, max_tokens=6, ignore_eos=True)
    fifth = free.tokens[4]
    first = free.tokens.index(fifth)
    header = {"tokenizer_config": {"eos_token_ids": [fifth]}}
    ended = write_tiny(path.with_name("ended.cmf"), header=header, tokenizer=tokenizer_json())
    with cortiq.load(ended, mode="exact", threads=1) as other:
        got = other.generate([5, 6, 7], temperature=0, max_tokens=6)
    assert got.tokens == free.tokens[: first + 1]
    assert got.finish_reason == "stop"
    assert got.text == model.detokenize(free.tokens[:first])


def test_a_stop_string_ends_before_itself(model: cortiq.Model) -> None:
    free = model.generate("Hello", temperature=0, max_tokens=24, ignore_eos=True)
    stop = free.text[6:9]
    got = model.generate("Hello", temperature=0, max_tokens=24, stop=[stop, "never there"], ignore_eos=True)
    assert got.text == free.text[: free.text.index(stop)]
    assert got.finish_reason == "stop"
    assert len(got.tokens) < len(free.tokens)


def test_a_stream_is_the_generation_in_pieces(model: cortiq.Model) -> None:
    whole = model.generate("Hello", seed=3, max_tokens=20, ignore_eos=True, logprobs=2)
    chunks = list(model.stream("Hello", seed=3, max_tokens=20, ignore_eos=True, logprobs=2))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert tuple(token for chunk in chunks for token in chunk.tokens) == whole.tokens
    assert tuple(item for chunk in chunks for item in chunk.logprobs) == whole.logprobs
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "length"
    assert chunks[-1].timings is not None


def test_logprobs_are_those_of_the_logits(model: cortiq.Model) -> None:
    got = model.generate([3, 4], temperature=0, max_tokens=3, logprobs=5, ignore_eos=True)
    logits = model.forward([3, 4, *got.tokens[:-1]])[1:].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row, item in zip(expected, got.logprobs, strict=True):
        assert item.logprob == pytest.approx(row[item.token], abs=1e-4)
        assert [token for token, _ in item.top] == np.argsort(-row)[:5].tolist()
    assert model.generate([3, 4], max_tokens=2).logprobs == ()


def test_the_context_bounds_prompt_and_answer(model: cortiq.Model) -> None:
    got = model.generate([7] * 250, temperature=0, ignore_eos=True)
    assert (len(got.tokens), got.finish_reason) == (7, "length")
    assert len(model.generate([7] * 256, ignore_eos=True).tokens) == 1
    with pytest.raises(UsageError) as caught:
        model.generate([7] * 257)
    assert (caught.value.code, caught.value.expected, caught.value.found) == ("context", "at most 256", 257)
    with pytest.raises(UsageError, match="empty"):
        model.generate([])


def test_a_prefix_that_was_evaluated_is_not_evaluated_again(path: Path) -> None:
    with cortiq.load(path, mode="exact", threads=1) as model:
        first = model.generate([3, 4, 5, 6], temperature=0, max_tokens=4, ignore_eos=True)
        longer = [3, 4, 5, 6, *first.tokens[:2], 9, 9]
        second = model.generate(longer, temperature=0, max_tokens=4, ignore_eos=True)
        assert (first.timings.cached_tokens, second.timings.cached_tokens) == (0, 6)
        again = model.generate(longer, temperature=0, max_tokens=4, ignore_eos=True)
        assert again.timings.cached_tokens == len(longer) - 1
    with cortiq.load(path, mode="exact", threads=1) as fresh:
        expected = fresh.generate(longer, temperature=0, max_tokens=4, ignore_eos=True)
    assert second.tokens == again.tokens == expected.tokens


def test_a_window_that_has_moved_on_starts_anew(tmp_path: Path) -> None:
    arch = {"layer_types": ["SlidingAttention", "FullAttention"], "sliding_window": 4}
    path = write_tiny(tmp_path / "m.cmf", Tiny(arch=arch))
    prompt = list(range(10, 210))
    with cortiq.load(path, mode="exact", threads=1) as model:
        expected = model.generate(prompt[:20], temperature=0, max_tokens=4).tokens
        model.generate(prompt, temperature=0, max_tokens=4)
        got = model.generate(prompt[:20], temperature=0, max_tokens=4)
    assert (got.timings.cached_tokens, got.tokens) == (0, expected)


def test_streams_side_by_side_and_one_too_many(model: cortiq.Model) -> None:
    alone = [model.generate(prompt, temperature=0, max_tokens=8, ignore_eos=True) for prompt in ("Hello", "World")]
    streams = [model.stream(prompt, temperature=0, max_tokens=8, ignore_eos=True) for prompt in ("Hello", "World")]
    texts = ["", ""]
    for pair in zip(*streams, strict=False):
        for i, chunk in enumerate(pair):
            texts[i] += chunk.text
    for i, rest in enumerate(streams):
        texts[i] += "".join(chunk.text for chunk in rest)
    assert sorted(texts) == sorted(got.text for got in alone) or all(
        got.text.startswith(text) for got, text in zip(alone, texts, strict=True)
    )
    open_streams = [model.stream("Hello", max_tokens=50, ignore_eos=True) for _ in range(3)]
    next(open_streams[0])
    next(open_streams[1])
    with pytest.raises(UsageError) as caught:
        next(open_streams[2])
    assert caught.value.code == "busy"
    for stream in open_streams[:2]:
        stream.close()
    model.generate("Hello", max_tokens=1)


def test_threads_share_a_model(model: cortiq.Model) -> None:
    prompts = [[10 + i, 20 + i, 30 + i] for i in range(6)]
    expected = [model.generate(p, temperature=0, max_tokens=10, ignore_eos=True).tokens for p in prompts]
    got: dict[int, tuple[int, ...]] = {}

    def work(i: int) -> None:
        got[i] = model.generate(prompts[i], temperature=0, max_tokens=10, ignore_eos=True).tokens

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(prompts))] == expected


def test_an_interrupt_leaves_the_model_ready(path: Path) -> None:
    with cortiq.load(path, mode="exact", threads=1) as model:
        expected = model.generate([1, 2, 3], temperature=0, max_tokens=5, ignore_eos=True).tokens
        stream = model.stream([4, 5, 6], max_tokens=100, ignore_eos=True)
        next(stream)
        with pytest.raises(KeyboardInterrupt):
            stream.throw(KeyboardInterrupt())
        assert model.generate([1, 2, 3], temperature=0, max_tokens=5, ignore_eos=True).tokens == expected


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where tests run unattended and it was ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_long_prompt_early(tmp_path: Path) -> None:
    big = Tiny(hidden=256, width=1024, layers=3, head_dim=64, max_positions=4096)
    with cortiq.load(write_tiny(tmp_path / "m.cmf", big), mode="exact", threads=1, context=4096) as model:
        prompt = [i % 500 for i in range(4000)]
        begun = time.perf_counter()
        model.generate(prompt[:512], max_tokens=1)
        part = time.perf_counter() - begun
        timer = threading.Timer(part / 4, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            model.generate(prompt[::-1], max_tokens=1)
        assert time.perf_counter() - begun < part
        timer.join()
        assert len(model.generate(prompt[:8], max_tokens=2).tokens) <= 2
