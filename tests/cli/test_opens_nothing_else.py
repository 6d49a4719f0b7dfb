"""A command on a file opens that file: no network, no other program, no other path but the interpreter's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

import cortiq
from builders.operations import base
from builders.tiny import Tiny, tokenizer_json, write_tiny

SOURCE = Path(cortiq.__file__).parents[1]
# The interpreter, its libraries and what it asks of the system about itself.
SYSTEM = ("/usr/", "/lib", "/etc/ld.so", "/etc/localtime", "/proc/", "/sys/", "/dev/")
OPENED = re.compile(r'openat\([^"]*"([^"]*)", ([^,)]*).*= \d')

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


READING = (
    "info FILE",
    "info FILE --tensors --json",
    "verify FILE",
    "verify FILE --require-hashes",
    "verify FILE --quick",
    "masks FILE",
    "skill list FILE",
    "log FILE",
    "story FILE",
    "diff FILE FILE",
)
RUNNING = ("run FILE --raw --max-tokens 2 hello", "ppl FILE --file text.txt --ctx 16")


@pytest.mark.parametrize("arguments", READING)
def test_reading_commands(arguments: str, tmp_path: Path) -> None:
    opened = opened_by(arguments.split(), tmp_path, base)
    assert {path for path, _ in opened} <= {"model.cmf", "model.cmf.sig"}
    assert all("O_RDONLY" in flags for _, flags in opened)


@pytest.mark.parametrize("arguments", RUNNING)
def test_running_commands(arguments: str, tmp_path: Path) -> None:
    opened = opened_by(arguments.split(), tmp_path, tiny)
    assert {path for path, _ in opened} <= {"model.cmf", "text.txt"}
    assert all("O_RDONLY" in flags for _, flags in opened)


def test_deep_verification_starts_itself_alone(tmp_path: Path) -> None:
    """The tokenizer is loaded by another process of the interpreter, which opens nothing either."""
    opened = opened_by(["verify", "FILE", "--deep"], tmp_path, tiny, programs=2)
    assert {path for path, _ in opened} <= {"model.cmf", "model.cmf.sig"}
    assert all("O_RDONLY" in flags for _, flags in opened)


@pytest.mark.parametrize("arguments", ["edit FILE --set a=1", "undo FILE", "compact FILE", "repair FILE"])
def test_writing_commands(arguments: str, tmp_path: Path) -> None:
    opened = opened_by(arguments.split(), tmp_path, base)
    names = {path for path, _ in opened}
    assert all(name in ("model.cmf", ".") or name.startswith(".model.cmf.tmp.") for name in names), names
    assert not any("O_TRUNC" in flags for _, flags in opened)


def tiny(path: Path) -> Path:
    """A model that runs, and a text beside it."""
    (path.parent / "text.txt").write_text("a model that runs, and a text beside it " * 20)
    return write_tiny(path, Tiny(matrix="q8_row"), tokenizer=tokenizer_json())


def opened_by(
    arguments: list[str], scratch: Path, make: Callable[[Path], Path], programs: int = 1
) -> list[tuple[str, str]]:
    """What the command opened in the folder of its file, and how; fails for any other path, call or program."""
    log, folder = scratch / "trace", scratch / "files"
    folder.mkdir()
    path = make(folder / "model.cmf")
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=%network,execve,openat"]
    files = {"FILE": str(path), "text.txt": str(folder / "text.txt")}
    command = [sys.executable, "-m", "cortiq", *(files.get(argument, argument) for argument in arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([*trace, *command], env=environment, capture_output=True, text=True, check=False)
    if "PTRACE" in run.stderr:
        pytest.skip("strace may not trace here")
    assert run.returncode == 0, run.stderr
    lines = log.read_text().splitlines()
    calls = [line.split(maxsplit=1)[1].partition("(")[0] for line in lines if "(" in line]
    assert [sys.executable in line for line in lines if " execve(" in line] == [True] * programs
    assert set(calls) <= {"execve", "openat", "<... openat resumed>", "<... execve resumed>"}, sorted(set(calls))
    ours = (str(SOURCE), sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())
    found = []
    for name, flags in (match.groups() for match in map(OPENED.search, lines) if match):
        if Path(name).is_relative_to(folder):
            found.append((os.path.relpath(name, folder), flags))
        else:
            assert name.startswith((*SYSTEM, *ours)) or name in (".", os.fspath(Path.cwd())), name
    assert found
    return found
