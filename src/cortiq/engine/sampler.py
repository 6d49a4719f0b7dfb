"""Sampling parameters, and the native sampler behind them. Knows logits and ids, no text and no model.

In order: penalties; temperature, where 0 takes the highest logit (of equal ones the lowest id); top-k; top-p over what
is left; min-p relative to the likeliest; one uniform number that is a function of the seed and the position. The
log-probabilities that are reported are those of the logits as they came.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import NativeMissing, UsageError

MAX_LOGPROBS = 1024
_MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from logits.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 cut nothing. ``repetition_penalty`` divides
    positive and multiplies negative logits of every token seen, the prompt included; ``presence_penalty`` is
    subtracted from the logits of generated tokens, ``frequency_penalty`` once per time. The same ``seed`` gives the
    same tokens; None takes one at random. ``logprobs`` n > 0 reports the n likeliest tokens of every position.

    Raises UsageError for a value out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int = 0

    def __post_init__(self) -> None:
        self._require("temperature", 0 <= self.temperature < math.inf, "a number >= 0")
        self._integer("top_k", 0, _MAX_COUNT)
        self._require("top_p", 0 < self.top_p <= 1, "in (0, 1]")
        self._require("min_p", 0 <= self.min_p <= 1, "in [0, 1]")
        self._require("repetition_penalty", 0 < self.repetition_penalty < math.inf, "a number > 0")
        self._require("presence_penalty", math.isfinite(self.presence_penalty), "a finite number")
        self._require("frequency_penalty", math.isfinite(self.frequency_penalty), "a finite number")
        self._integer("logprobs", 0, MAX_LOGPROBS)
        if self.seed is not None:
            self._integer("seed", 0, 2**64 - 1)

    def _integer(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        self._require(name, whole and low <= value <= high, f"an integer from {low} to {high}")

    def _require(self, name: str, holds: bool, range_: str) -> None:
        if not holds:
            raise UsageError(f"{name} is out of range", code=name, expected=range_, found=getattr(self, name))


class Sampler:
    """Picks the tokens of one sequence. Not for several threads at once."""

    def __init__(self, vocab_size: int, params: SamplingParams, *, isa: str = "") -> None:
        """Raises NativeMissing without the native core."""
        try:
            from cortiq import _native
        except ImportError as error:
            raise NativeMissing("the native core is not built; run tools/build_native.sh", code="native") from error
        self._native = _native.Sampler(
            vocab_size,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            logprobs=params.logprobs,
            isa=isa,
        )

    def accept(self, token: int, *, generated: bool = True) -> None:
        """``token`` became part of the sequence: as something ``generated``, or from the prompt."""
        self._native.accept(token, generated)

    def sample(self, logits: NDArray[np.float32]) -> tuple[int, float, list[tuple[int, float]]]:
        """The token chosen, its log-probability and the likeliest tokens with theirs, best first.

        ``logits`` f32 [vocab]. Without ``logprobs`` the second is NaN and the third empty. Does not accept the token.
        Raises ShapeMismatch for another number of logits, NonFinite when one of them is NaN or +inf.
        """
        return self._native.sample(logits)
