"""Every system call of every operation fails once: the error is told, the file is the old one or the new one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.operations import OPERATIONS, base, state_of
from cortiq.container import open_single, verify

CALLS = ("pwrite", "posix_fallocate", "ftruncate", "fsync", "fchmod", "rename")
# Once these have begun to fail after the commit point, the new version is there.
AFTER = {"fsync"}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return base(tmp_path / "template")


class Failing:
    """A function of ``os`` that raises at its n-th call."""

    def __init__(self, real: Callable[..., Any], number: int, error: int) -> None:
        self.real, self.left, self.error = real, number, error

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.error, os.strerror(self.error))
        return self.real(*arguments, **more)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_call_fails_once(name: str, error: int, template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path, old = folder / "model.cmf", state_of(template)
    shutil.copyfile(template, path)
    OPERATIONS[name](path)
    new, failures = state_of(path), 0
    for call in CALLS:
        number = 0
        while True:
            number += 1
            shutil.copyfile(template, path)
            with pytest.MonkeyPatch.context() as patch:
                failing = Failing(getattr(os, call), number, error)
                patch.setattr(os, call, failing)
                if failing_at_all(name, path, failing, error):
                    failures += 1
                else:
                    assert state_of(path) == new
                    break
            found = state_of(path)
            assert found == old or (found == new and call in AFTER), (call, number)
            assert [p.name for p in folder.iterdir()] == ["model.cmf"], (call, number)
            with open_single(path) as file:
                assert verify(file).ok
            if found == old:
                OPERATIONS[name](path)
                assert state_of(path) == new
    assert failures >= 4


def failing_at_all(name: str, path: Path, failing: Failing, error: int) -> bool:
    """Run the operation; whether it met the failing call. An error is told as the system said it."""
    try:
        OPERATIONS[name](path)
    except OSError as caught:
        assert caught.errno == error  # noqa: PT017 - whether it raises is what we ask
        assert failing.left <= 0
        return True
    assert failing.left > 0
    return False


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("share", [2, 7, 1000])
def test_short_writes_go_on(name: str, share: int, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = template.with_name("one.cmf"), template.with_name("two.cmf")
    for path in (one, two):
        shutil.copyfile(template, path)
    OPERATIONS[name](one)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: max(1, len(data) // share)], at))
    OPERATIONS[name](two)
    assert state_of(two) == state_of(one)


def test_a_write_of_nothing_is_an_error(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="nothing") as caught:
        OPERATIONS["edit"](template)
    assert caught.value.errno == errno.EIO
