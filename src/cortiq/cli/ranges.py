"""Lists of numbers on the command line, as llama-bench takes them: ``1,2``, ``128-512+128``, ``1-16*2``."""

from __future__ import annotations

import re

import click

RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?")
MOST = 10_000


class NumberList(click.ParamType[tuple[int, ...]]):
    """A comma list of numbers and ranges, each number at least ``least``. The step of a range is +1 unless given."""

    name = "list"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers: list[int] = []
        for part in value.split(","):
            match = RANGE.fullmatch(part.strip())
            if match is None:
                self.fail(f"{part.strip()!r} is neither a number nor a range such as 128-512+128 or 1-16*2", param, ctx)
            numbers += self._expand(match, param, ctx)
        if min(numbers) < self._least:
            self.fail(f"{min(numbers)} is less than {self._least}", param, ctx)
        return tuple(numbers)

    def _expand(self, match: re.Match[str], param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        first, last, operator, step = match.groups()
        at, end, by = int(first), int(last or first), int(step or 1)
        grows = operator != "*" or (at > 0 and by > 1)
        if end < at or by < 1 or not grows:
            self.fail(f"{match.group()!r} never reaches its end", param, ctx)
        found: list[int] = []
        while at <= end:
            found.append(at)
            at = at * by if operator == "*" else at + by
            if len(found) > MOST:
                self.fail(f"{match.group()!r} has more than {MOST} numbers", param, ctx)
        return found


class PromptAndGeneration(click.ParamType[tuple[int, int]]):
    """``PP,TG``: a prompt of PP tokens followed by TG generated ones."""

    name = "pp,tg"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+),(\d+)", value.strip())
        if match is None or "0" in match.groups():
            self.fail(f"{value!r} is not a pair of positive numbers such as 512,128", param, ctx)
        return int(match[1]), int(match[2])
