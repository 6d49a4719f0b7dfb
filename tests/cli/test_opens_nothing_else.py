"""A command on a file opens that file: no network, no other program, no other path but the interpreter's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import cortiq
from builders.operations import base

SOURCE = Path(cortiq.__file__).parents[1]
# The interpreter, its libraries and what it asks of the system about itself.
SYSTEM = ("/usr/", "/lib", "/etc/ld.so", "/etc/localtime", "/proc/", "/sys/", "/dev/")
OPENED = re.compile(r'openat\([^"]*"([^"]*)", ([^,)]*).*= \d')

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.mark.parametrize(
    "arguments",
    [["info"], ["info", "--tensors", "--json"], ["verify"], ["verify", "--require-hashes"], ["log"]],
    ids=" ".join,
)
def test_reading_commands(arguments: list[str], tmp_path: Path) -> None:
    opened = opened_by(arguments, tmp_path)
    assert {path for path, _ in opened} <= {"model.cmf", "model.cmf.sig"}
    assert all("O_RDONLY" in flags for _, flags in opened)


@pytest.mark.parametrize("arguments", [["edit", "--set", "a=1"], ["undo"], ["compact"], ["repair"]], ids=" ".join)
def test_writing_commands(arguments: list[str], tmp_path: Path) -> None:
    opened = opened_by(arguments, tmp_path)
    names = {path for path, _ in opened}
    assert all(name in ("model.cmf", ".") or name.startswith(".model.cmf.tmp.") for name in names), names
    assert not any("O_TRUNC" in flags for _, flags in opened)


def opened_by(arguments: list[str], scratch: Path) -> list[tuple[str, str]]:
    """What the command opened in the folder of its file, and how; fails for any other path or call."""
    log, folder = scratch / "trace", scratch / "files"
    folder.mkdir()
    path = base(folder / "model.cmf")
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=%network,execve,openat"]
    command = [sys.executable, "-m", "cortiq", arguments[0], str(path), *arguments[1:]]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([*trace, *command], env=environment, capture_output=True, text=True, check=False)
    if "PTRACE" in run.stderr:
        pytest.skip("strace may not trace here")
    assert run.returncode == 0, run.stderr
    lines = log.read_text().splitlines()
    calls = [line.split(maxsplit=1)[1].partition("(")[0] for line in lines if "(" in line]
    assert calls.count("execve") == 1
    assert set(calls) <= {"execve", "openat", "<... openat resumed>"}, sorted(set(calls))
    ours = (str(SOURCE), sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())
    found = []
    for name, flags in (match.groups() for match in map(OPENED.search, lines) if match):
        if Path(name).is_relative_to(folder):
            found.append((os.path.relpath(name, folder), flags))
        else:
            assert name.startswith((*SYSTEM, *ours)) or name in (".", os.fspath(Path.cwd())), name
    assert found
    return found
