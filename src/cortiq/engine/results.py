"""What a generation gives back: text, ids, log-probabilities and timings, all frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock seconds of one generation.

    ``prompt_seconds`` covers the evaluation of ``prompt_tokens - cached_tokens`` tokens; the ``cached_tokens`` before
    them were still in the cache. ``decode_seconds`` covers everything after the first sampled token: sampling, text
    and one step for each of the ``generated_tokens - 1`` tokens that were fed back.
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    prompt_seconds: float
    decode_seconds: float

    @property
    def prompt_per_second(self) -> float:
        """Evaluated prompt tokens a second; 0.0 when there was nothing to time."""
        return _rate(self.prompt_tokens - self.cached_tokens, self.prompt_seconds)

    @property
    def decode_per_second(self) -> float:
        """Tokens a second after the first one; 0.0 when there was nothing to time."""
        return _rate(self.generated_tokens - 1, self.decode_seconds)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log of the probability the model gave ``token``, before any sampling option, and its likeliest rivals
    ``top`` as (token, logprob), best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a stream. The texts of a stream concatenate to the text of the same generation at once.

    ``finish_reason`` and ``timings`` are None in every chunk but the last. ``tokens`` are the ids sampled since the
    chunk before; their text may come later, when it can no longer become a stop string or half a character.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    timings: Timings | None


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished generation.

    ``tokens`` are all sampled ids, a stop id included; ``text`` leaves out stop ids, stop strings and what follows.
    ``finish_reason`` is ``stop`` (a stop id or stop string) or ``length`` (``max_tokens``, or the context is full).
    ``logprobs`` has one entry a token when they were asked for, else it is empty.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...]
    timings: Timings


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0
