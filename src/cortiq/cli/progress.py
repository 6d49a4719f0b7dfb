"""How far a long job is: a bar on a terminal, JSON lines for a program, or nothing."""

from __future__ import annotations

import json
import shutil
import time
from types import TracebackType
from typing import Protocol, Self, TextIO

INTERVAL = 0.1  # seconds between two drawings: the eye sees no more


class Progress(Protocol):
    """A context manager that shows ``done`` of ``total``; a total of 0 means it is not known."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, done: int, total: int = 0) -> None: ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, done: int, total: int = 0) -> None:
        pass


class JsonLines:
    """Writes ``{"progress": label, "done": n, "total": n, "unit": "B", "rate": per second, "eta": seconds}`` lines."""

    def __init__(self, stream: TextIO, label: str, unit: str) -> None:
        self._stream = stream
        self._label = label
        self._unit = unit
        self._start = time.monotonic()
        self._shown = -INTERVAL
        self._last = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show()
        self._end()

    def update(self, done: int, total: int = 0) -> None:
        self._last = (done, total)
        elapsed = time.monotonic() - self._start
        if elapsed - self._shown >= INTERVAL:
            self._shown = elapsed
            self._show()

    def _rate_and_eta(self) -> tuple[float, float | None]:
        done, total = self._last
        rate = done / max(time.monotonic() - self._start, 1e-9)
        return rate, (total - done) / rate if total and rate else None

    def _show(self) -> None:
        done, total = self._last
        rate, eta = self._rate_and_eta()
        line = {"progress": self._label, "done": done, "total": total, "unit": self._unit, "rate": rate, "eta": eta}
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def _end(self) -> None:
        pass


class Bar(JsonLines):
    """Draws one line over and over: label, bar, amount, rate, time left."""

    def _show(self) -> None:
        from cortiq.cli.console import human_bytes, human_count

        done, total = self._last
        rate, eta = self._rate_and_eta()
        amount = human_bytes if self._unit == "B" else human_count
        text = f"{self._label}  {amount(done)}"
        if total:
            filled = round(20 * min(done / total, 1))
            text = f"{self._label}  [{'#' * filled}{'.' * (20 - filled)}] {amount(done)} of {amount(total)}"
        text += f", {amount(int(rate))}{self._unit if self._unit != 'B' else ''}/s"
        if eta is not None:
            text += f", {int(eta) // 60}:{int(eta) % 60:02d} left"
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()

    def _end(self) -> None:
        self._stream.write("\r\x1b[K")
        self._stream.flush()
