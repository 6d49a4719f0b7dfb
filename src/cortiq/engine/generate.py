"""The decode loop: prompt in, tokens and text out, one step of the plan a token."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from cortiq.engine.options import Request
from cortiq.engine.results import Chunk, FinishReason, Generation, Timings, TokenLogprob
from cortiq.engine.sampler import Sampler
from cortiq.engine.sequence import F32, PlanSequence, Runner
from cortiq.errors import UsageError
from cortiq.text.detokenizer import Detokenizer
from cortiq.text.stop import StopStrings
from cortiq.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to run. Without a ``tokenizer`` there are ids but no text, and no stop strings.

    Raises UsageError for a prompt that is empty or longer than the context, before anything is computed.
    """

    runner: Runner
    tokenizer: Tokenizer | None
    stop_ids: frozenset[int]
    prompt: Sequence[int]
    request: Request

    def __post_init__(self) -> None:
        if len(self.prompt) == 0:
            raise UsageError("the prompt is empty", code="prompt")
        if self.room < 1:
            raise UsageError(
                "the prompt does not fit the context: shorten it or load the model with a larger one",
                code="context",
                expected=f"at most {self.runner.info.context}",
                found=len(self.prompt),
            )
        if self.request.stop and self.tokenizer is None:
            raise UsageError("stop strings need a tokenizer, and the file has none", code="stop")

    @property
    def room(self) -> int:
        """Tokens that can be sampled at most: the last one need not be evaluated."""
        return self.runner.info.context - len(self.prompt) + 1

    @property
    def limit(self) -> int:
        """Tokens to sample at most."""
        wished = self.request.max_tokens
        return self.room if wished is None else min(wished, self.room)


def stream(job: Job) -> Generator[Chunk, None, None]:
    """Runs ``job``: a chunk whenever text became certain, and a last one that says why it ended.

    Whatever ends it, KeyboardInterrupt included, leaves the model ready for the next request.
    """
    with job.runner.sequence(job.prompt) as sequence:
        yield from _Loop(job, sequence).run()


def collect(chunks: Iterator[Chunk]) -> Generation:
    """The whole of a stream."""
    text: list[str] = []
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    for chunk in chunks:
        text.append(chunk.text)
        tokens += chunk.tokens
        logprobs += chunk.logprobs
    if chunk.finish_reason is None or chunk.timings is None:
        raise UsageError("the stream was not run to its end", code="stream")
    return Generation(
        text="".join(text),
        tokens=tuple(tokens),
        prompt_tokens=chunk.timings.prompt_tokens,
        finish_reason=chunk.finish_reason,
        logprobs=tuple(logprobs),
        timings=chunk.timings,
    )


class _Loop:
    """State of one running generation. ``started`` moves on by the time the consumer takes between chunks."""

    def __init__(self, job: Job, sequence: PlanSequence) -> None:
        self._job = job
        self._sequence = sequence
        self._sampler = Sampler(job.runner.info.facts.vocab, job.request.sampling)
        self._stop_ids = frozenset[int]() if job.request.ignore_eos else job.stop_ids
        self._text = _TextStream(job.tokenizer, job.request.stop)
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    def run(self) -> Generator[Chunk, None, None]:
        job, sequence = self._job, self._sequence
        self._sampler.accept_prompt(job.prompt)
        begun = time.perf_counter()
        cached = sequence.rewind(job.prompt)
        logits = sequence.prefill(job.prompt[cached:])
        started = time.perf_counter()
        prompt_seconds = started - begun
        count = 0
        while True:
            token = self._sample(logits)
            count += 1
            text, finish = self._advance(token, last=count == job.limit)
            if finish is not None:
                break
            if text:
                chunk = self._chunk(text)
                left = time.perf_counter()
                yield chunk
                started += time.perf_counter() - left
            logits = sequence.decode(token)
        seconds = time.perf_counter() - started
        timings = Timings(len(job.prompt), cached, count, prompt_seconds, seconds)
        yield self._chunk(text, finish, timings)

    def _sample(self, logits: F32) -> int:
        token, logprob, top = self._sampler.sample(logits)
        self._sampler.accept(token)
        self._tokens.append(token)
        if self._job.request.sampling.logprobs:
            self._logprobs.append(TokenLogprob(token, logprob, tuple(top)))
        return token

    def _advance(self, token: int, *, last: bool) -> tuple[str, FinishReason | None]:
        """Text that became certain, and why to end, if so."""
        if token in self._stop_ids:
            text, _ = self._text.flush()
            return text, "stop"
        text, stopped = self._text.push(token)
        if stopped:
            return text, "stop"
        if not last:
            return text, None
        rest, stopped = self._text.flush()
        return text + rest, "stop" if stopped else "length"

    def _chunk(self, text: str, finish: FinishReason | None = None, timings: Timings | None = None) -> Chunk:
        chunk = Chunk(text, tuple(self._tokens), tuple(self._logprobs), finish, timings)
        self._tokens.clear()
        self._logprobs.clear()
        return chunk


class _TextStream:
    """Ids to text that may be shown: whole characters only, possible stop strings held back."""

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str]) -> None:
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stop = StopStrings(stop)

    def push(self, token: int) -> tuple[str, bool]:
        """Text that became certain, and whether a stop string was found."""
        if self._detokenizer is None:
            return "", False
        return self._stop.push(self._detokenizer.push(token))

    def flush(self) -> tuple[str, bool]:
        """What was held back, and whether a stop string was found in it."""
        if self._detokenizer is None:
            return "", False
        text, stopped = self._stop.push(self._detokenizer.flush())
        return (text, True) if stopped else (text + self._stop.flush(), False)
