"""Sampling parameters and the sampler of one sequence (decisions 25 and 31). The arithmetic is native.

Order of the chain, which is Hugging Face's: logit bias and penalties, temperature, top-k, top-p, min-p, one uniform
number. The number depends on the seed and on how many tokens the sequence has, on nothing else, so a request gives the
same tokens whatever else is running.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cortiq.errors import UsageError
from cortiq.native import core

MAX_LOGPROBS = 1000
_NO_BIAS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one sequence picks its tokens. Raises UsageError for a value out of range.

    ``temperature``          >= 0; 0 is greedy (highest logit, of equal ones the lowest id); below 1e-5 counts as 0
    ``top_k``                keep the k likeliest; 0 keeps all
    ``top_p``                in (0, 1]; keep the likeliest until their probabilities reach top_p
    ``min_p``                in [0, 1]; drop what is less likely than min_p times the likeliest
    ``repetition_penalty``   > 0; divides positive and multiplies negative logits of tokens in prompt and text
    ``presence_penalty``     subtracted from the logits of tokens generated before
    ``frequency_penalty``    subtracted once per time a token was generated
    ``seed``                 in [0, 2^64), or None for a random one
    ``logprobs``             report this many likeliest tokens and every token's log-probability; 0 computes none
    ``logit_bias``           {token id: number or -inf} added to the logits
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 0.9
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(_is_number(value) and math.isfinite(value), name, "a finite number", value)
        for name in ("top_k", "logprobs"):
            value = getattr(self, name)
            _require(isinstance(value, int) and not isinstance(value, bool), name, "an integer", value)
        _require(0 <= self.temperature <= 1e6, "temperature", "in [0, 1e6]", self.temperature)
        _require(0 <= self.top_k < 1 << 31, "top_k", ">= 0", self.top_k)
        _require(1e-30 <= self.top_p <= 1, "top_p", "in (0, 1]", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p", "in [0, 1]", self.min_p)
        _require(1e-6 <= self.repetition_penalty <= 1e6, "repetition_penalty", "> 0", self.repetition_penalty)
        for name in ("presence_penalty", "frequency_penalty"):
            _require(abs(getattr(self, name)) <= 1e6, name, "in [-1e6, 1e6]", getattr(self, name))
        _require(0 <= self.logprobs <= MAX_LOGPROBS, "logprobs", f"in [0, {MAX_LOGPROBS}]", self.logprobs)
        seeded = isinstance(self.seed, int) and not isinstance(self.seed, bool) and 0 <= self.seed < 1 << 64
        _require(self.seed is None or seeded, "seed", "in [0, 2^64)", self.seed)
        for token, value in self.logit_bias.items():
            _require(isinstance(token, int) and token >= 0, "a logit_bias token", "an id", token)
            _require(_is_number(value) and value < math.inf, "a logit_bias", "a number or -inf", value)


class Sampler:
    """Picks the tokens of one sequence. Not to be shared between threads.

    Raises UsageError when ``params`` name a token outside the vocabulary.
    """

    def __init__(self, vocab_size: int, params: SamplingParams) -> None:
        self.params = params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        self._native = core.Sampler(
            vocab_size,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            seed=self.seed,
            logprobs=params.logprobs,
            logit_bias=list(params.logit_bias.items()),
        )

    @property
    def position(self) -> int:
        """Number of tokens accepted so far; with the seed it decides the next draw. Settable, to replay a step."""
        return self._native.position

    @position.setter
    def position(self, value: int) -> None:
        self._native.position = value

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """The tokens became part of the sequence as its prompt: only the repetition penalty looks at them."""
        for token in tokens:
            self._native.accept(token, False)

    def accept(self, token: int) -> None:
        """``token`` became part of the sequence as generated text."""
        self._native.accept(token)

    def sample(self, logits: npt.NDArray[np.float32]) -> tuple[int, float, list[tuple[int, float]]]:
        """Pick from ``logits`` [vocab_size]: (token, its log-probability, the likeliest as (token, log-probability)).

        Does not accept the token. Log-probabilities are the natural logs of the model's own distribution, before any
        parameter; without ``params.logprobs`` they are NaN and empty. Raises NonFinite for logits that are NaN or
        infinite, ShapeMismatch for a wrong number of them.
        """
        return self._native.sample(logits)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(holds: bool, name: str, wanted: str, found: object) -> None:
    if not holds:
        raise UsageError(f"{name} must be {wanted}", code="sampling", found=found)
