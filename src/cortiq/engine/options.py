"""Options of one generation: what callers may say, and what holds when they say nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from cortiq.engine.sampler import SamplingParams
from cortiq.errors import Parse, UsageError
from cortiq.text.stop import StopStrings

NO_FILE_DEFAULTS: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.9}
_PENALTIES: Mapping[str, float] = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_FROM_FILE = ("temperature", "top_p", "top_k", "min_p", *_PENALTIES)
_INTEGER = frozenset(["top_k"])


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of ``generate``, ``stream``, ``chat`` and ``chat_stream``.

    ``max_tokens`` None: until the context is full. ``temperature`` 0 is greedy, and then penalties apply only when
    they are given. ``logprobs`` n >= 1 reports every token's log-probability and those of the n likeliest.
    ``logit_bias`` adds to the logits of ids. ``ignore_eos`` treats stop ids as ordinary tokens. Sampling options left
    out come from the file.
    """

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    logprobs: int
    logit_bias: Mapping[int, float]
    stop: str | Sequence[str]
    ignore_eos: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A resolved set of options."""

    sampling: SamplingParams
    max_tokens: int | None
    stop: tuple[str, ...]
    ignore_eos: bool


def file_defaults(block: Mapping[str, Any] | None) -> SamplingParams:
    """Sampling parameters a file asks for in ``generation_config``.

    A block that names a temperature, top_p or top_k leaves what it does not name neutral; any other file gets
    temperature 0.7 and top_p 0.9. Never a penalty that the file does not name. Raises Parse for a value that is not a
    number, UsageError for one out of range.
    """
    given: dict[str, Any] = {}
    for name in _FROM_FILE:
        value = None if block is None else block.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int if name in _INTEGER else (int, float)):
            raise Parse("must be a number", code="generation", section=f"header.generation_config.{name}", found=value)
        given[name] = value
    base: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0}
    if not given.keys() & {"temperature", "top_p", "top_k"}:
        base = NO_FILE_DEFAULTS
    return SamplingParams(**{**base, "top_k": 0, "min_p": 0.0, **_PENALTIES, **given})


def resolve(options: GenerateOptions, defaults: SamplingParams) -> Request:
    """Raises UsageError for an unknown option or a value that cannot be meant."""
    given: dict[str, Any] = dict(options)
    unknown = given.keys() - GenerateOptions.__annotations__.keys()
    if unknown:
        raise UsageError(f"unknown option {sorted(unknown)[0]!r}", code="option")
    stop = given.pop("stop", ())
    stop = (stop,) if isinstance(stop, str) else tuple(stop or ())
    StopStrings(stop)
    max_tokens = given.pop("max_tokens", None)
    if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
        raise UsageError("max_tokens must be at least 1", code="max_tokens", found=max_tokens)
    ignore_eos = bool(given.pop("ignore_eos", False))
    names = {field.name for field in fields(SamplingParams)}
    if given.get("temperature") == 0:
        given = {**_PENALTIES, **given}
    sampling = replace(defaults, **{name: value for name, value in given.items() if name in names})
    return Request(sampling=sampling, max_tokens=max_tokens, stop=stop, ignore_eos=ignore_eos)
