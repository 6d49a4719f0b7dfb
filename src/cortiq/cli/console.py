"""The terminal: the only module that prints.

Standard output carries data, standard error everything said about it. Colour needs a terminal and no ``NO_COLOR``, or
``FORCE_COLOR``; ``--color`` wins. Progress is drawn on a terminal only, or written as JSON lines when asked for.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from cortiq.cli.progress import Bar, JsonLines, Progress, Silent

SCHEMA_VERSION = 1
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
CHOICES = ("auto", "always", "never")


class Console:
    """Standard output and standard error, with what the user asked of them."""

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._err = err
        self._environ = environ
        self._color = "auto"
        self._progress = "auto"
        self.quiet = False
        self.verbosity = 0

    @classmethod
    def standard(cls) -> Console:
        """The console of this process."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a narrow locale must not end a generation
        return cls(sys.stdout, sys.stderr, os.environ)

    def configure(self, *, color: str, quiet: bool, verbosity: int, progress: str) -> None:
        """Take over the options every command has; ``color`` is one of CHOICES, ``progress`` auto, json or none."""
        self._color = color
        self._progress = progress
        self.quiet = quiet
        self.verbosity = verbosity

    # Data, on standard output

    def write(self, text: str) -> None:
        """Write ``text`` as it is, at once."""
        self._out.write(text)
        self._out.flush()

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def say(self, text: str) -> None:
        """Write a model's words: on a terminal, control characters are shown instead of obeyed."""
        if self._out.isatty():
            text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
        self.write(text)

    def json(self, document: Mapping[str, Any], *, indent: int | None = 2) -> None:
        """Write one document, ``schema_version`` first."""
        self.line(json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False, indent=indent))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Write aligned columns; those numbered in ``right`` are set flush right."""
        widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]

        def aligned(line: Sequence[str]) -> str:
            cells = (
                c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            return "  ".join(cells).rstrip()

        self.line(self.paint(aligned(head), "bold"))
        self.write("".join(aligned(row) + "\n" for row in rows))

    def paint(self, text: str, style: str) -> str:
        """``text`` in a style of STYLES, when standard output shows colour."""
        return _painted(text, style) if self._shows_color(self._out) else text

    @property
    def interactive(self) -> bool:
        """Whether somebody sits in front of it: standard input and output are terminals."""
        return sys.stdin is not None and sys.stdin.isatty() and self._out.isatty()

    # Talk, on standard error

    def note(self, text: str) -> None:
        """Say what is being done, unless --quiet."""
        if not self.quiet:
            self._tell(text)

    def detail(self, text: str) -> None:
        """Say it only with --verbose."""
        if self.verbosity:
            self._tell(text)

    def warning(self, text: str) -> None:
        self._tell(f"{self._paint_err('warning:', 'yellow')} {text}")

    def failure(self, text: str) -> None:
        self._tell(f"{self._paint_err('error:', 'red')} {text}")

    def hint(self, text: str) -> None:
        self._tell(text)

    def progress(self, label: str, *, unit: str = "B") -> Progress:
        """A context manager whose ``update(done, total)`` shows how far a long job is."""
        if self._progress == "json":
            return JsonLines(self._err, label, unit)
        env = self._environ
        drawn = self._err.isatty() and env.get("TERM") != "dumb" and not env.get("CI")
        return Bar(self._err, label, unit) if drawn and self._progress == "auto" and not self.quiet else Silent()

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def _tell(self, text: str) -> None:
        self._out.flush()
        self._err.write(text + "\n")
        self._err.flush()

    def _paint_err(self, text: str, style: str) -> str:
        return _painted(text, style) if self._shows_color(self._err) else text

    def _shows_color(self, stream: TextIO) -> bool:
        if self._color != "auto":
            return self._color == "always"
        if self._environ.get("NO_COLOR"):
            return False
        if self._environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and self._environ.get("TERM") != "dumb"


def _painted(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def human_bytes(count: float) -> str:
    """``count`` bytes in binary units: ``"98.0 MiB"``."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.2f} TiB"


def human_count(count: int) -> str:
    """``count`` things in decimal units: ``"134.5 M"``."""
    if count < 1000:
        return str(count)
    value = float(count)
    for unit in ("k", "M", "G"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.2f} T"
