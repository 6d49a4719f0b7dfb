"""Perplexity by llama.cpp's method, so that the numbers of both can be compared for the same tokenizer.

The text is tokenized as a whole and cut into chunks of ``n_ctx`` tokens that do not overlap. Where the tokenizer adds a
BOS, it replaces the first token of every chunk. Only the second half is scored: the logits at positions n_ctx/2 to
n_ctx-2, each against the token that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cortiq.engine.model import Model
from cortiq.errors import UsageError
from cortiq.text.detokenizer import Detokenizer

# Rows of logits that are turned into log-probabilities together: bounds the memory of the temporaries.
_ROWS = 16


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Result of a run, or of what has been scored so far.

    ``value`` +- ``stderr`` is exp of the mean ``nll`` (natural log) over ``scored`` tokens. ``scored_bytes`` is the
    UTF-8 length of their text: unlike perplexity, ``bits_per_byte`` compares across tokenizers.
    """

    method: str
    n_ctx: int
    chunks: int
    tokens: int
    scored: int
    scored_bytes: int
    value: float
    stderr: float
    nll: float

    @property
    def bits_per_byte(self) -> float:
        """Mean bits the model needs for one byte of the scored text; nan when they have no text."""
        return self.nll * self.scored / math.log(2) / self.scored_bytes if self.scored_bytes else math.nan


Progress = Callable[[Perplexity, int], None]


def perplexity(
    model: Model,
    text: str,
    *,
    n_ctx: int = 512,
    chunks: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """Perplexity of ``text``; ``chunks`` limits how many are scored.

    ``progress`` is called after each chunk with the result so far and the number of chunks there will be.
    Raises UsageError when ``n_ctx`` exceeds the model's context and when the text is shorter than two chunks.
    """
    if not 4 <= n_ctx <= model.context:
        raise UsageError(
            "n_ctx must fit the context of the model",
            code="n_ctx",
            expected=f"4 to {model.context}",
            found=n_ctx,
        )
    ids = model.tokenizer.encode(text, parse_special=False)
    if len(ids) < 2 * n_ctx:
        raise UsageError("the text is too short", code="text", expected=f"at least {2 * n_ctx} tokens", found=len(ids))
    total = len(ids) // n_ctx if chunks is None else min(chunks, len(ids) // n_ctx)
    if total < 1:
        raise UsageError("chunks must be at least 1", code="chunks", found=chunks)
    lengths = _byte_lengths(model, ids[: total * n_ctx])
    tally = _Tally(n_ctx, len(ids))
    first = n_ctx // 2
    wanted = np.zeros(n_ctx, np.uint8)
    wanted[first : n_ctx - 1] = 1
    out = np.empty((n_ctx - 1 - first, model.vocab_size), np.float32)
    with model.runner.sequence() as sequence:
        for start in range(0, total * n_ctx, n_ctx):
            chunk = np.array(ids[start : start + n_ctx], np.int32)
            targets = chunk[first + 1 :].copy()
            if model.tokenizer.prefix_ids:
                chunk[0] = model.tokenizer.prefix_ids[0]
            sequence.reset()
            sequence.score(chunk, wanted, out)
            tally.add(negative_log_likelihood(out, targets), lengths[start + first + 1 : start + n_ctx])
            if progress is not None:
                progress(tally.result(), total)
    return tally.result()


def negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """-ln softmax(logits)[target] of each row: logits f32 [n, vocab], targets i32 [n]; f64 [n].

    Exponentials in f32, their sum in f64, as llama.cpp does.
    """
    result = np.empty(len(targets), np.float64)
    for start in range(0, len(targets), _ROWS):
        part = logits[start : start + _ROWS]
        peak = part.max(axis=1, keepdims=True)
        total = np.exp(part - peak).sum(axis=1, dtype=np.float64)
        chosen = part[np.arange(len(part)), targets[start : start + _ROWS]].astype(np.float64)
        result[start : start + _ROWS] = np.log(total) + peak[:, 0] - chosen
    return result


class _Tally:
    def __init__(self, n_ctx: int, tokens: int) -> None:
        self._n_ctx, self._tokens = n_ctx, tokens
        self._chunks = self._scored = self._bytes = 0
        self._sum = self._squares = 0.0

    def add(self, nll: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        self._chunks += 1
        self._scored += nll.size
        self._bytes += int(lengths.sum())
        self._sum += float(nll.sum())
        self._squares += float(np.square(nll).sum())

    def result(self) -> Perplexity:
        mean = self._sum / self._scored
        value = math.exp(mean)
        variance = max(self._squares / self._scored - mean * mean, 0.0)
        return Perplexity(
            method="llama",
            n_ctx=self._n_ctx,
            chunks=self._chunks,
            tokens=self._tokens,
            scored=self._scored,
            scored_bytes=self._bytes,
            value=value,
            stderr=math.sqrt(variance / (self._scored - 1)) * value if self._scored > 1 else math.nan,
            nll=mean,
        )


def _byte_lengths(model: Model, ids: Sequence[int]) -> NDArray[np.int64]:
    """UTF-8 bytes that become certain with each id; a character of several tokens counts where it ends."""
    detokenizer = Detokenizer(model.tokenizer)
    return np.fromiter((len(detokenizer.push(token).encode()) for token in ids), np.int64, len(ids))
