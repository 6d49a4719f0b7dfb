"""A model that says what it is told to, for tests of what is around the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cortiq.engine.results import Chunk, Timings


@dataclass
class Info:
    isa: str = "scalar"
    mode: str = "fast"
    threads: int = 1
    context: int = 64


@dataclass
class NoFile:
    """Stands for the open file; has no masks unless told so."""

    masks: bytes | None = None

    def section(self, name: str) -> bytes | None:
        return self.masks if name == "masks" else None


@dataclass
class FakeModel:
    """Answers every prompt with ``pieces``; remembers what it was asked. ``fails`` is raised after the pieces."""

    pieces: Sequence[str] = ("Hel", "lo", ".")
    finish: Any = "stop"
    fails: BaseException | None = None
    path: Path = Path("fake.cmf")
    info: Info = field(default_factory=Info)
    file: NoFile = field(default_factory=NoFile)
    asked: list[tuple[str, Any, Mapping[str, Any]]] = field(default_factory=list)

    def stream(self, prompt: str, **options: Any) -> Iterator[Chunk]:
        self.asked.append(("raw", prompt, options))
        return self._say()

    def chat_stream(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[Chunk]:
        self.asked.append(("chat", list(messages), options))
        return self._say()

    def _say(self) -> Iterator[Chunk]:
        for number, piece in enumerate(self.pieces):
            yield Chunk(piece, (number,), (), None, None)
        if self.fails is not None:
            raise self.fails
        count = len(self.pieces)
        yield Chunk("", (99,), (), self.finish, Timings(5, 2, count + 1, 0.5, 2.0))

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *_: object) -> None:
        pass
