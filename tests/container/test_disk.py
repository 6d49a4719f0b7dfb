"""The one class that writes: it finishes what the system leaves half done, and tells what it cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortiq.container.disk import Disk


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_short_writes_go_on(fd: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda to, data, at: real(to, data[:most], at))
    Disk().write_at(fd, 5, memoryview(b"0123456789"))
    assert os.pread(fd, 100, 0) == bytes(5) + b"0123456789"


def test_a_write_of_nothing_is_an_error(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="nothing") as caught:
        Disk().write_at(fd, 0, memoryview(b"x"))
    assert caught.value.errno == errno.EIO


def test_no_bytes_are_no_call(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwrite")
    monkeypatch.delattr(os, "posix_fallocate")
    Disk().write_at(fd, 0, memoryview(b""))
    Disk().allocate(fd, 10, 0)
    assert os.fstat(fd).st_size == 0


def test_room(fd: int) -> None:
    Disk().allocate(fd, 10, 90)
    assert os.pread(fd, 200, 0) == bytes(100)
    Disk().resize(fd, 5)
    assert os.fstat(fd).st_size == 5


@pytest.mark.parametrize(("number", "told"), [(errno.EOPNOTSUPP, False), (errno.EINVAL, False), (errno.ENOSPC, True)])
def test_only_a_system_without_allocation_is_forgiven(
    fd: int, number: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    if told:
        with pytest.raises(OSError, match="No space"):
            Disk().allocate(fd, 0, 1)
    else:
        Disk().allocate(fd, 0, 1)


def test_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    before = len(os.listdir("/proc/self/fd"))
    Disk().rename(tmp_path / "a", tmp_path / "b")
    Disk().sync_dir(tmp_path)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"a"]
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(NotADirectoryError):
        Disk().sync_dir(tmp_path / "b")
