"""One of several processes that work on the same file: ``crowd.py append|read|compact FILE WHO COUNT``.

An appender prints the names it added, a reader the longest list of names it saw, both as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from builders.operations import registered, tensor
from cortiq.container import InPlace, grow, open_single
from cortiq.container.hashing import hash64
from cortiq.edit.compact import compact
from cortiq.errors import Busy


def append(path: Path, who: str, count: int) -> list[str]:
    """Every other time waiting for the lock, else trying again."""
    names = [f"{who}-{i}" for i in range(count)]
    for i, name in enumerate(names):
        while True:
            try:
                grow(path, add=[tensor(name, 500 + i)], header=registered(name), allowed=InPlace(wait=i % 2 == 0))
                break
            except Busy:
                time.sleep(0.001)
    return names


def read(path: Path, who: str, count: int) -> list[str]:
    """Each time the names must be those of the time before and perhaps more."""
    names: list[str] = []
    for _ in range(count):
        with open_single(path) as file:
            now = list(file)
            if now[: len(names)] != names:
                raise AssertionError(f"{who}: {names} became {now}")
            names = now
            damaged = [name for name in now if hash64(file[name].raw) != file.tensors[name].hash]
            if damaged:
                raise AssertionError(f"{who}: {damaged} are not what their hashes say")
    return names


def compact_often(path: Path, who: str, count: int) -> list[str]:
    for _ in range(count):
        time.sleep(0.2)
        compact(path, allowed=InPlace(wait=True))
    return []


if __name__ == "__main__":
    work = {"append": append, "read": read, "compact": compact_often}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))  # noqa: T201 - for the test
