"""Perplexity by llama.cpp's method, against the definition computed from the model's logits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

import cortiq
from builders.tiny import tokenizer_json, write_tiny
from cortiq.engine.perplexity import Perplexity, negative_log_likelihood, perplexity
from cortiq.errors import UsageError

TEXT = "The quick brown fox jumps over the lazy dog. Ünïcödé! <s> " * 6


def tokenizer_with_bos() -> bytes:
    """The tokenizer with a post-processor that puts ``<s>`` in front."""
    data = json.loads(tokenizer_json())
    data["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "<s>", "type_id": 0}})
    data["post_processor"]["special_tokens"] = {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
    return json.dumps(data).encode()


@pytest.fixture(scope="module", params=["bos", "no_bos"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cortiq.Model]:
    tokenizer = tokenizer_with_bos() if request.param == "bos" else tokenizer_json()
    path = write_tiny(tmp_path_factory.mktemp("model") / "m.cmf", tokenizer=tokenizer)
    with cortiq.load(path, mode="exact", threads=1) as model:
        yield model


def test_the_method_of_llama(model: cortiq.Model) -> None:
    n_ctx = 32
    ids = model.tokenizer.encode(TEXT, parse_special=False)
    bos = bool(model.tokenizer.prefix_ids)
    assert (ids[0] == 1) == bos
    nll: list[float] = []
    for start in range(0, len(ids) // n_ctx * n_ctx, n_ctx):
        chunk = ids[start : start + n_ctx]
        logits = model.forward([1, *chunk[1:]] if bos else chunk).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        nll += [-logprobs[i, chunk[i + 1]] for i in range(n_ctx // 2, n_ctx - 1)]
    seen: list[tuple[int, int]] = []

    def progress(so_far: Perplexity, total: int) -> None:
        seen.append((so_far.chunks, total))

    result = perplexity(model, TEXT, n_ctx=n_ctx, progress=progress)
    chunks = len(ids) // n_ctx
    assert (result.chunks, result.scored, result.tokens) == (chunks, 15 * chunks, len(ids))
    assert result.nll == pytest.approx(np.mean(nll), rel=1e-6)
    assert result.value == pytest.approx(math.exp(np.mean(nll)), rel=1e-5)
    spread = math.sqrt(np.var(nll) / (len(nll) - 1)) * result.value
    assert result.stderr == pytest.approx(spread, rel=1e-5)
    assert seen == [(i + 1, chunks) for i in range(chunks)]
    total_bytes = len(TEXT.encode()) * result.scored / len(ids)
    assert result.scored_bytes == pytest.approx(total_bytes, rel=0.15)
    assert result.bits_per_byte == pytest.approx(result.nll * result.scored / math.log(2) / result.scored_bytes)


def test_chunks_limit_the_run(model: cortiq.Model) -> None:
    assert perplexity(model, TEXT, n_ctx=32, chunks=2).chunks == 2


@pytest.mark.parametrize(
    ("text", "n_ctx", "chunks", "code"),
    [("short", 32, None, "text"), (TEXT, 257, None, "n_ctx"), (TEXT, 2, None, "n_ctx"), (TEXT, 32, 0, "chunks")],
)
def test_what_cannot_be_scored(model: cortiq.Model, text: str, n_ctx: int, chunks: int | None, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        perplexity(model, text, n_ctx=n_ctx, chunks=chunks)
    assert caught.value.code == code


def test_likelihoods_of_extreme_logits() -> None:
    logits = np.array([[0.0, 0.0], [1000.0, -1000.0], [-1e30, 3e30]] * 9, np.float32)
    found = negative_log_likelihood(logits, np.array([0, 1, 1] * 9, np.int32))
    np.testing.assert_allclose(found, [math.log(2), 2000.0, 0.0] * 9, atol=1e-6)
