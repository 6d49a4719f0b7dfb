"""Six broken protocols: the tests of this folder must see each of them, or they would not see our own mistakes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.operations import append, base, state_of, tensor, write
from builders.power_check import cut_everywhere
from builders.recorder import Recorder, Step
from cortiq.container import growth, locking, open_single, output
from cortiq.container.growth import grow
from cortiq.edit.compact import compact
from cortiq.edit.history import checkout, undo

Detect = Callable[[Path, pytest.MonkeyPatch, bool], bool]


class NoFirstBarrier(Recorder):
    """The first barrier of a growth is left out."""

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if sum(step.kind == "write" and step.offset == 0 for step in self.steps) == 0:
            self.steps.pop()


class EnvelopeFirst(Recorder):
    """The envelope goes to the disk before the tail."""

    def write_at(self, fd: int, offset: int, data: memoryview) -> None:
        super().write_at(fd, offset, data)
        if offset == 0:
            envelope = self.steps.pop()
            self.steps[1:1] = [envelope, Step("sync", envelope.inode)]


class NoSyncBeforeRename(Recorder):
    """A new file is renamed over the target without being synced."""

    def sync(self, fd: int) -> None:
        """Nothing reaches the disk."""


class TruncatedTarget(output.AtomicFile):
    """The target is emptied and written in place."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.discard()
        self._fd = os.open(self.target, os.O_RDWR)
        self.temporary = self.target
        self.disk.resize(self.fd, 0)


def invalid(operation: Callable[[Path], object], folder: Path, disk: Recorder) -> bool:
    counts, _ = cut_everywhere(operation, folder, disk, per_point=4)
    return any(verdict.startswith("invalid") for verdict in counts)


def no_first_barrier(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    return invalid(append, folder, NoFirstBarrier() if broken else Recorder())


def envelope_first(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    return invalid(append, folder, EnvelopeFirst() if broken else Recorder())


def rename_without_sync(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    return invalid(compact, folder, NoSyncBeforeRename() if broken else Recorder())


def truncated_target(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    if broken:
        patch.setattr("cortiq.container.writer.AtomicFile", TruncatedTarget)
    return invalid(write, folder, Recorder())


def dead_bytes_used_again(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    """A version that was undone stays in the file, and a reader of it keeps what it sees."""
    if broken:
        patch.setattr(growth, "tail_start", lambda file, size: _end_of_live_data(file))
    path = base(folder / "model.cmf")
    append(path)
    wanted = state_of(path)
    with open_single(path) as reader:
        undo(path)
        grow(path, add=[tensor("other", 40_000, 8)])
        same = all(bytes(reader[name].raw) == payload for name, _, _, payload in wanted[1])
    try:
        checkout(path, 3)
    except Exception:  # noqa: BLE001 - whatever it is, the version is gone
        return True
    return not same or state_of(path) != wanted


def _end_of_live_data(file: object) -> int:
    from cortiq.container.blob_layout import align
    from cortiq.container.extents import extents

    end = max(extent.end for extent in extents(file))  # type: ignore[arg-type]
    start: int = file.envelope.data.offset  # type: ignore[attr-defined]
    return start + align(end - start, 64)


def no_second_look_at_the_inode(folder: Path, patch: pytest.MonkeyPatch, broken: bool) -> bool:
    """A compaction comes between our open and our lock."""
    if broken:
        patch.setattr(locking, "is_named", lambda fd, path: True)
    path = base(folder / "model.cmf")
    shutil.copyfile(path, folder / "other.cmf")
    real, done = fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        if not done:
            done.append(fd)
            os.rename(folder / "other.cmf", path)
        real(fd, how)

    patch.setattr(fcntl, "flock", flock)
    grow(path, add=[tensor("kept")])
    with open_single(path) as file:
        return "kept" not in file


MUTANTS: list[Detect] = [
    no_first_barrier,
    envelope_first,
    rename_without_sync,
    truncated_target,
    dead_bytes_used_again,
    no_second_look_at_the_inode,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_seen_and_the_protocol_is_not(mutant: Detect, tmp_path: Path) -> None:
    for broken in (False, True):
        folder = tmp_path / str(broken)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            assert mutant(folder, patch, broken) is broken
