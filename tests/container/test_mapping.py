"""Reading a mapped file that loses pages (SIGBUS), in this process and with another handler of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cortiq.container.mapping import Mapping, check_kept, open_regular
from cortiq.errors import Changed, Limit, UsageError
from cortiq.native import core

PAGES = 8
NBYTES = PAGES * 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"\x11" * NBYTES)
    return path


def test_lost_pages_read_as_zeros_and_are_known(path: Path) -> None:
    mapping, other = Mapping(open_regular(path)), Mapping(open_regular(path))
    view = mapping.view(0, NBYTES)
    os.truncate(path, 4096)
    check_kept(view)  # nothing was read yet
    assert bytes(view) == b"\x11" * 4096 + bytes(NBYTES - 4096)
    with pytest.raises(Changed):
        check_kept(view)
    check_kept(other.view(0, 10))
    with pytest.raises(Changed):
        other.check_usable()


def test_a_guard_ends_with_the_last_view(path: Path) -> None:
    for _ in range(5000):  # more than there are guards at a time
        mapping = Mapping(open_regular(path))
        view = mapping.view(0, 4096)
        mapping.close()
        assert view[0] == 0x11
    with pytest.raises(UsageError):
        mapping.check_usable()


def test_too_many_guards_are_refused() -> None:
    keep = []
    with pytest.raises(Limit, match="too many files"):
        keep.extend(core.MapGuard(1 << 40, 1) for _ in range(5000))


@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()"])
def test_other_faults_still_end_the_process(path: Path, before: str) -> None:
    code = f"""{before}
import mmap, os, sys
from cortiq.container.mapping import Mapping, open_regular
kept = Mapping(open_regular(sys.argv[1]))
fd = os.open(sys.argv[1], os.O_RDWR)
own = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
os.ftruncate(fd, 0)
own[0]
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == -signal.SIGBUS
    assert ("Bus error" in run.stderr) == bool(before)
