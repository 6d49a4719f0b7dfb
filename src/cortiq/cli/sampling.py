"""Options of a generation on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cortiq.cli.params import F, option, stacked
from cortiq.errors import UsageError

GROUP = "Sampling (default: what the model's makers recommend)"
NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
)
UNIT = click.FloatRange(0, 1)


def sampling_options(function: F) -> F:
    """Parameters of NAMES and ``greedy``; None means it was not given."""
    return stacked(
        option("--temperature", "--temp", group=GROUP, type=click.FloatRange(0), help="0 is greedy."),
        option("--top-k", group=GROUP, type=click.IntRange(0), help="Only the k likeliest; 0 is all."),
        option("--top-p", group=GROUP, type=UNIT, help="Only the likeliest that add up to p."),
        option("--min-p", group=GROUP, type=UNIT, help="Only those at least p times as likely as the best."),
        option("--repetition-penalty", group=GROUP, type=click.FloatRange(0, min_open=True), help="1 is none."),
        option("--presence-penalty", group=GROUP, type=float, help="Per token that occurred."),
        option("--frequency-penalty", group=GROUP, type=float, help="Per occurrence."),
        option("--seed", group=GROUP, type=click.IntRange(0), help="Same seed, same answer."),
        option("--greedy", group=GROUP, is_flag=True, help="Always the likeliest token."),
        option("--stop", group=GROUP, multiple=True, metavar="TEXT", help="Stop before TEXT; repeatable."),
    )(function)


def generate_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``generate`` out of command line parameters.

    Raises UsageError.greedy for --greedy together with an option it makes meaningless.
    """
    chosen = {name: given[name] for name in NAMES if given[name] not in (None, ())}
    if "stop" in chosen:
        chosen["stop"] = list(chosen["stop"])
    if given["greedy"]:
        clash = [name for name in ("temperature", "top_k", "top_p", "min_p") if name in chosen]
        if clash:
            raise UsageError(f"--greedy leaves no room for --{clash[0].replace('_', '-')}", code="greedy")
        chosen["temperature"] = 0.0
    return chosen
