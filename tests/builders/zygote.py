"""Runs operations in forked children, so that a tracer counts the system calls of the operation alone.

A line on standard input names a folder with one file for each operation to be run, ``NAME.cmf``. The answer is a line
with ``NAME=STATUS`` for each: 0, the number of the signal that killed it, negative, or 3 for an exception.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import traceback
from pathlib import Path

from builders.operations import ATTEMPTS, OPERATIONS, SETS, base

ALL = OPERATIONS | SETS | ATTEMPTS
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = ctypes.c_ulong(2**64 - 1)


def child(name: str, path: Path) -> None:
    """The operation, and the end of the process."""
    status = 3
    try:
        ALL[name](path)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
    finally:
        os._exit(status)


def warm_up() -> None:
    """Every operation once: what is imported and made on the first call is no part of the operation."""
    with tempfile.TemporaryDirectory() as folder:
        for name, operation in ALL.items():
            operation(base(Path(folder) / f"{name}.cmf"))


def main() -> None:
    warm_up()
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    os.write(1, b"ready\n")
    for line in sys.stdin:
        folder = Path(line.strip())
        told = []
        for name in ALL:
            path = folder / f"{name}.cmf"
            if not path.exists():
                continue
            pid = os.fork()
            if pid == 0:
                child(name, path)
            told.append(f"{name}={os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
        os.write(1, (" ".join(told) + "\n").encode())


if __name__ == "__main__":
    main()
