"""Options of a generation and where they come from."""

from __future__ import annotations

from typing import Any

import pytest

from cortiq.engine.options import file_defaults, resolve
from cortiq.errors import CortiqError, Parse, UsageError


def test_without_a_word_from_the_file() -> None:
    for block in (None, {}, {"repetition_penalty": 1.1}):
        params = file_defaults(block)
        assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.7, 0.9, 0, 0.0)
    assert file_defaults(None).repetition_penalty == 1.0
    assert file_defaults({"repetition_penalty": 1.1}).repetition_penalty == 1.1


def test_a_file_that_says_something_leaves_the_rest_neutral() -> None:
    params = file_defaults({"top_k": 64, "top_p": 0.95, "do_sample": True})
    assert (params.temperature, params.top_p, params.top_k) == (1.0, 0.95, 64)
    params = file_defaults({"temperature": 0.6})
    assert (params.temperature, params.top_p, params.top_k) == (0.6, 1.0, 0)


@pytest.mark.parametrize("block", [{"temperature": "hot"}, {"top_k": 1.5}, {"top_p": True}, {"min_p": []}])
def test_a_file_with_values_that_are_no_numbers(block: dict[str, Any]) -> None:
    with pytest.raises(Parse) as caught:
        file_defaults(block)
    assert caught.value.section == f"header.generation_config.{next(iter(block))}"


def test_what_is_given_wins() -> None:
    defaults = file_defaults({"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})
    request = resolve({"temperature": 0.9, "seed": 5, "stop": "x", "max_tokens": 3}, defaults)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.repetition_penalty, sampling.seed) == (0.9, 20, 1.1, 5)
    assert (request.stop, request.max_tokens, request.ignore_eos) == (("x",), 3, False)


def test_greedy_drops_the_files_penalties_but_not_those_given() -> None:
    defaults = file_defaults({"repetition_penalty": 1.1})
    assert resolve({"temperature": 0}, defaults).sampling.repetition_penalty == 1.0
    assert resolve({"temperature": 0, "repetition_penalty": 1.2}, defaults).sampling.repetition_penalty == 1.2


@pytest.mark.parametrize(
    "options",
    [
        {"temprature": 1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"temperature": -1},
        {"top_p": 2.0},
        {"top_k": -1},
        {"stop": [""]},
        {"stop": [3]},
        {"logprobs": -1},
    ],
)
def test_options_that_cannot_be_meant(options: Any) -> None:
    with pytest.raises((UsageError, CortiqError)):
        resolve(options, file_defaults(None))
