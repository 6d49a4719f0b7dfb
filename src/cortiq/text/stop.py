"""Stop strings over a stream of text: what could still become one is held back until it cannot."""

from __future__ import annotations

from collections.abc import Iterable

from cortiq.errors import UsageError


class StopStrings:
    """Watches a stream for the first of several strings.

    The string that ends first in the stream wins, and of two that end together the longer one, so the result does
    not depend on how the text was cut into pieces. The stop string itself is never emitted.
    Raises UsageError for an empty stop string.
    """

    def __init__(self, strings: Iterable[str] | str = ()) -> None:
        self._strings = (strings,) if isinstance(strings, str) else tuple(dict.fromkeys(strings))
        if any(not isinstance(s, str) or not s for s in self._strings):
            raise UsageError("a stop string must be a non-empty string", code="stop")
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """Add ``text``; returns what may be shown now, and whether a stop string has been found.

        After a match nothing more is emitted.
        """
        if self.matched is not None:
            return "", True
        if not self._strings:
            return text, False
        buffer = self._held + text
        if (found := self._first(buffer)) is not None:
            start, self.matched = found
            self._held = ""
            return buffer[:start], True
        keep = max(_overlap(buffer, string) for string in self._strings)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep], False

    def flush(self) -> str:
        """The text held back, at the end of a stream that never matched."""
        held, self._held = self._held, ""
        return held

    def _first(self, buffer: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for string in self._strings:
            start = buffer.find(string)
            if start >= 0 and (best is None or (start + len(string), start) < best[:2]):
                best = (start + len(string), start, string)
        return None if best is None else (best[1], best[2])


def _overlap(buffer: str, string: str) -> int:
    """Length of the longest end of ``buffer`` that is a proper beginning of ``string``."""
    for length in range(min(len(buffer), len(string) - 1), 0, -1):
        if buffer.endswith(string[:length]):
            return length
    return 0
