"""What a check of a file finds (SPEC 8): an error that is a problem, or a warning that only strict checking minds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cortiq.container.file import File
from cortiq.errors import CortiqError, Parse


@dataclass(frozen=True, slots=True)
class Finding:
    """``error`` as it would be raised; ``problem`` is False for what is odd but allowed."""

    error: CortiqError
    problem: bool = True


Check = Callable[[File], Iterator[Finding]]
"""Looks at an open file. Yields findings and raises nothing but Changed and OSError."""


def odd(
    message: str,
    code: str,
    expected: object = None,
    found: object = None,
    *,
    offset: int | None = None,
    tensor: str | None = None,
) -> Finding:
    """A warning: Parse with ``code``, for what a reader accepts and a careful writer avoids."""
    error = Parse(message, code=code, offset=offset, tensor=tensor, expected=expected, found=found)
    return Finding(error, problem=False)
