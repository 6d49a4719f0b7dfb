"""Where a prompt comes from: the argument, standard input, or both."""

from __future__ import annotations

import os
import select
import stat
import sys

from cortiq.cli.console import Console
from cortiq.errors import UsageError

PATIENCE = 2.0  # seconds after which a silent pipe is worth a word


def assemble(argument: str | None, console: Console) -> str | None:
    """The whole prompt: what is piped in stands before the argument; ``-`` means standard input alone.

    None when there is neither. Raises UsageError.stdin for input that is not UTF-8.
    """
    if argument == "-":
        return read_input(console)
    if not _piped():
        return argument
    piped = read_input(console)
    if not piped:
        return argument
    return piped if argument is None else f"{piped.rstrip()}\n\n{argument}"


def read_input(console: Console) -> str:
    """Standard input to its end, as text."""
    try:
        return read_bytes(console).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("standard input is not UTF-8", code="stdin", offset=error.start) from error


def read_bytes(console: Console) -> bytes:
    """Standard input to its end."""
    stream = sys.stdin
    if stream is None:
        raise UsageError("there is no standard input", code="stdin")
    if _piped() and not select.select([stream], [], [], PATIENCE)[0]:
        console.note("waiting for standard input to end (redirect it from /dev/null if there is none)")
    return stream.buffer.read()


def _piped() -> bool:
    """Whether standard input is a pipe, a socket or a file, rather than a terminal, a device or closed."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, ValueError, OSError):  # closed, or replaced by something without a descriptor
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
