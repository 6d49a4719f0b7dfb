"""A disk that notes every step, and what a power cut between any two of them may leave (512-byte sectors)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cortiq.container import journal, locking, output
from cortiq.container.disk import Disk

SECTOR = 512


@dataclass(frozen=True)
class Step:
    """One step of ``kind``, of the file whose inode is ``inode``."""

    kind: str
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    size: int = 0
    source: str = ""
    target: str = ""


class Recorder(Disk):
    """Does what ``Disk`` does and keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def resize(self, fd: int, size: int) -> None:
        super().resize(fd, size)
        self.steps.append(Step("resize", inode(fd), size=size))

    def allocate(self, fd: int, offset: int, nbytes: int) -> None:
        super().allocate(fd, offset, nbytes)
        self.steps.append(Step("allocate", inode(fd), size=offset + nbytes))

    def write_at(self, fd: int, offset: int, data: memoryview) -> None:
        super().write_at(fd, offset, data)
        self.steps.append(Step("write", inode(fd), offset, bytes(data)))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.steps.append(Step("sync", inode(fd)))

    def rename(self, source: Path, target: Path) -> None:
        number = source.stat().st_ino
        super().rename(source, target)
        self.steps.append(Step("rename", number, source=source.name, target=target.name))

    def sync_dir(self, folder: Path) -> None:
        super().sync_dir(folder)
        self.steps.append(Step("sync_dir"))

    @property
    def written(self) -> int:
        """Bytes written."""
        return sum(len(step.data) for step in self.steps)


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


def install(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    """Make everything that writes files use ``disk``."""
    monkeypatch.setattr(locking.LockedFile, "disk", disk)
    monkeypatch.setattr(output.AtomicFile, "disk", disk)
    monkeypatch.setattr(journal.Journal, "disk", disk)


class PowerLoss:
    """Replays steps over the files of a folder as they were before."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        files = [path for path in folder.iterdir() if path.is_file()]
        self.names = {path.name: path.stat().st_ino for path in files}
        self.contents = {path.stat().st_ino: path.read_bytes() for path in files}
        self.random = random.Random(seed)

    def images(self, steps: list[Step], name: str, per_point: int) -> Iterator[bytes | None]:
        """What ``name`` may hold after a cut at each point of ``steps``, None for no file.

        For each point: no unsynced sector, all of them, the first and the last half, the first sector of the file
        alone, and ``per_point`` random choices of 10, 50 and 90 %; with the size of the file updated or not; with
        renames whose folder is not synced done or not.
        """
        for point in range(len(steps) + 1):
            durable, pending = self._files(steps[:point])
            for number in self._named(steps[:point], name):
                if number is None:
                    yield None
                else:
                    yield from self._contents(durable.get(number, b""), pending.get(number, []), per_point)

    def folders(self, steps: list[Step], per_point: int) -> Iterator[dict[str, bytes]]:
        """What the folder may hold after a cut at each point of ``steps``: contents by name.

        A journal keeps renames in order, so the first few of those after the last sync of the folder happened. Of what
        was not synced of a file nothing is there, everything, or one of ``per_point`` random halves of its sectors.
        """
        for point in range(len(steps) + 1):
            durable, pending = self._files(steps[:point])
            for names in self._orders(steps[:point]):
                for share in (0.0, 1.0, *[0.5] * per_point):
                    yield {name: self._content(durable, pending, number, share) for name, number in names.items()}

    def content(self, steps: list[Step], number: int, share: float) -> bytes:
        """What the file of an inode may hold after ``steps``, with about ``share`` of its unsynced sectors."""
        return self._content(*self._files(steps), number, share)

    def _orders(self, steps: list[Step]) -> list[dict[str, int]]:
        names, found = dict(self.names), [dict(self.names)]
        for step in steps:
            if step.kind == "rename":
                names.pop(step.source, None)
                names[step.target] = step.inode
                found.append(dict(names))
            elif step.kind == "sync_dir":
                found = [dict(names)]
        return found

    def _content(self, durable: dict[int, bytes], pending: dict[int, list[Step]], number: int, share: float) -> bytes:
        before, steps = durable.get(number, b""), pending.get(number, [])
        touched = sorted({sector for step in steps for sector in sectors(step)})
        after = applied(before, steps)
        return mixed(before, after, [s for s in touched if self.random.random() < share], len(after))

    def _files(self, steps: list[Step]) -> tuple[dict[int, bytes], dict[int, list[Step]]]:
        """Contents on the disk for sure, and the steps that may or may not have reached it."""
        durable, pending = dict(self.contents), {}
        for step in steps:
            if step.kind in ("resize", "allocate", "write"):
                pending.setdefault(step.inode, []).append(step)
            elif step.kind == "sync":
                durable[step.inode] = applied(durable.get(step.inode, b""), pending.pop(step.inode, []))
        return durable, pending

    def _named(self, steps: list[Step], name: str) -> set[int | None]:
        """Inodes that ``name`` may mean: renames after the last sync of the folder happened or did not, in order."""
        names: dict[str, int] = dict(self.names)
        found = {names.get(name)}
        for step in steps:
            if step.kind == "rename":
                names.pop(step.source, None)
                names[step.target] = step.inode
                found.add(names.get(name))
            elif step.kind == "sync_dir":
                found = {names.get(name)}
        return found

    def _contents(self, before: bytes, steps: list[Step], per_point: int) -> Iterator[bytes]:
        after = applied(before, steps)
        touched = sorted({sector for step in steps for sector in sectors(step)})
        half = len(touched) // 2
        choices: list[Iterable[int]] = [[], touched, touched[:half], touched[half:], [s for s in touched if s == 0]]
        for _ in range(per_point):
            for share in (0.1, 0.5, 0.9):
                choices.append([s for s in touched if self.random.random() < share])
        for chosen in choices:
            yield mixed(before, after, chosen, len(after))
            yield mixed(before, after, chosen, max([len(before), *((s + 1) * SECTOR for s in chosen)]))


def sectors(step: Step) -> range:
    """Sectors a step writes."""
    return range(step.offset // SECTOR, -(-(step.offset + len(step.data)) // SECTOR)) if step.data else range(0)


def applied(content: bytes, steps: Iterable[Step]) -> bytes:
    """``content`` after all steps."""
    data = bytearray(content)
    for step in steps:
        if step.kind == "resize":
            data = data[: step.size] + bytes(max(0, step.size - len(data)))
        elif step.kind == "allocate":
            data += bytes(max(0, step.size - len(data)))
        else:
            data += bytes(max(0, step.offset + len(step.data) - len(data)))
            data[step.offset : step.offset + len(step.data)] = step.data
    return bytes(data)


def mixed(before: bytes, after: bytes, chosen: Iterable[int], size: int) -> bytes:
    """``before``, cut or lengthened to ``size``, with the chosen sectors of ``after``."""
    data = bytearray(before[:size]) + bytes(max(0, size - len(before)))
    for sector in chosen:
        part = after[sector * SECTOR : (sector + 1) * SECTOR][: max(0, size - sector * SECTOR)]
        data[sector * SECTOR : sector * SECTOR + len(part)] = part
    return bytes(data[:size])
