"""Who may change a file in place, and when (SPEC 9)."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import base, edit, tensor
from cortiq.container import InPlace, grow, locking, open_single
from cortiq.container.locking import LockedFile, is_named, network_of
from cortiq.edit.compact import compact
from cortiq.edit.history import undo
from cortiq.errors import Busy, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return base(tmp_path / "model.cmf")


def refused(path: Path, code: str, **allowed: bool) -> None:
    before = path.read_bytes()
    for operation in (
        lambda: grow(path, add=[tensor("t")], allowed=InPlace(**allowed)),
        lambda: undo(path, InPlace(**allowed)),
        lambda: compact(path, allowed=InPlace(**allowed)),
    ):
        with pytest.raises(UsageError) as caught:
            operation()
        assert caught.value.code == code
        assert caught.value.path == str(path)
    assert path.read_bytes() == before


def test_symbolic_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.cmf"
    link.symlink_to(path)
    refused(link, "symlink")
    grow(link, add=[tensor("t")], allowed=InPlace(anyway=True))
    assert link.is_symlink()
    compact(link, allowed=InPlace(anyway=True))
    assert link.is_symlink()
    with open_single(path) as file:
        assert "t" in file


def test_other_names(path: Path, tmp_path: Path) -> None:
    os.link(path, tmp_path / "other.cmf")
    refused(path, "links")
    grow(path, add=[tensor("t")], allowed=InPlace(anyway=True))
    assert (tmp_path / "other.cmf").samefile(path)


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_not_a_regular_file(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(target)
        with pytest.raises(UsageError, match="not_regular"):
            grow(target, add=[tensor("t")])
    else:
        target.mkdir()
        with pytest.raises(IsADirectoryError):
            grow(target, add=[tensor("t")])


def test_read_only_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system refuses it; that root may write everywhere must not hide the way of the error."""
    real = os.open

    def refuse(name: object, flags: int, *more: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return real(name, flags, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        grow(path, add=[tensor("t")])


def test_network_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "network_of", lambda fd: "NFS")
    refused(path, "network")
    grow(path, add=[tensor("t")], allowed=InPlace(lock=False))


@pytest.mark.skipif(shutil.which("stat") is None, reason="no stat command to compare with")
def test_file_system_is_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = subprocess.run(["stat", "-f", "-c", "%t", path], capture_output=True, text=True, check=True)
    with path.open() as stream:
        monkeypatch.setattr(locking, "_NETWORK", {int(said.stdout, 16): "this one"})
        assert network_of(stream.fileno()) == "this one"
        monkeypatch.setattr(locking, "_NETWORK", {})
        assert network_of(stream.fileno()) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        network_of(10**6)


class TestSignature:
    def signature(self, path: Path) -> Path:
        beside = path.with_name(path.name + ".sig")
        beside.write_text("{}")
        return beside

    def test_refuses(self, path: Path) -> None:
        self.signature(path)
        refused(path, "signed")

    @pytest.mark.parametrize("operation", ["grow", "undo", "compact"])
    def test_is_set_aside_on_demand(self, path: Path, operation: str) -> None:
        beside, allowed = self.signature(path), InPlace(drop_signature=True)
        if operation == "grow":
            grow(path, add=[tensor("t")], allowed=allowed)
        elif operation == "undo":
            undo(path, allowed)
        else:
            compact(path, allowed=allowed)
        assert not beside.exists()
        assert path.with_name(path.name + ".sig.stale").read_text() == "{}"

    def test_stays_when_nothing_is_done(self, path: Path) -> None:
        beside, allowed = self.signature(path), InPlace(drop_signature=True)
        grow(path, header=lambda fields: fields, allowed=allowed)
        with pytest.raises(UsageError, match="shards"):
            grow(path, header=lambda fields: {**fields, "shard": {"no": 1, "count": 2}}, allowed=allowed)
        assert beside.exists()

    def test_comes_back_when_a_compaction_fails(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        beside, allowed = self.signature(path), InPlace(drop_signature=True)
        real = os.fsync

        def fail(fd: int) -> None:
            if not os.path.isdir(f"/proc/self/fd/{fd}"):
                raise OSError(5, "Input/output error")
            real(fd)

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            compact(path, allowed=allowed)
        assert beside.exists()


class TestLock:
    def test_second_writer_is_told(self, path: Path) -> None:
        with LockedFile(path, InPlace()):
            for operation in (lambda: edit(path), lambda: undo(path), lambda: compact(path)):
                with pytest.raises(Busy, match="locked") as caught:
                    operation()
                assert caught.value.code == "locked"
        edit(path)

    def test_waiting(self, path: Path) -> None:
        done = threading.Event()

        def wait() -> None:
            grow(path, add=[tensor("t")], allowed=InPlace(wait=True))
            done.set()

        with LockedFile(path, InPlace()):
            thread = threading.Thread(target=wait)
            thread.start()
            assert not done.wait(0.1)
        thread.join(10)
        assert done.is_set()

    def test_readers_take_no_lock(self, path: Path) -> None:
        with LockedFile(path, InPlace()), open_single(path) as file:
            assert len(file)

    def test_given_back_although_a_view_is_left(self, path: Path) -> None:
        with LockedFile(path, InPlace()) as locked, locked.read() as file:
            view = file["skill.a.w.x"].raw
        edit(path)
        assert len(view) == 9000

    def test_without(self, path: Path) -> None:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            grow(path, add=[tensor("t")], allowed=InPlace(lock=False))

    def test_replaced_between_open_and_lock(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The inode we locked may have lost its name to a compaction; growing it would lose what is added."""
        real, replaced = fcntl.flock, []

        def flock(fd: int, how: int) -> None:
            if not replaced:
                replaced.append(fd)
                two_layers().save(path.with_name("new"))
                os.rename(path.with_name("new"), path)
            real(fd, how)

        monkeypatch.setattr(fcntl, "flock", flock)
        grow(path, add=[tensor("t")])
        with open_single(path) as file:
            assert "t" in file

    def test_replaced_for_ever(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(locking, "is_named", lambda fd, name: False)
        with pytest.raises(Busy, match="replaced") as caught:
            edit(path)
        assert caught.value.code == "replaced"

    def test_a_removed_file_has_no_name(self, path: Path) -> None:
        with path.open() as stream:
            assert is_named(stream.fileno(), path)
            path.unlink()
            assert not is_named(stream.fileno(), path)
