"""Operations in a process that strace can interrupt at any system call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cortiq

TESTS = Path(__file__).parents[1]


class Zygote:
    """A process that runs all operations when told to."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(TESTS), str(Path(cortiq.__file__).parents[1])])
        command = [sys.executable, str(TESTS / "builders" / "zygote.py")]
        pipe = subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        assert self.answer() == "ready"

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, folder: Path) -> dict[str, int]:
        """Status of the operation on each file of ``folder``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        return {name: int(status) for name, _, status in (word.partition("=") for word in self.answer().split())}

    def run_traced(self, folder: Path, injection: str) -> dict[str, int]:
        """The same while strace does ``injection`` to the processes."""
        call = injection.partition(":")[0]
        command = ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={injection}"]
        tracer = subprocess.Popen([*command, "-p", str(self.process.pid)], stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        try:
            line = tracer.stderr.readline()
            if "attached" not in line:
                pytest.skip(f"strace cannot attach here: {line.strip()}")
            return self.run(folder)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(60)
            tracer.stderr.close()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
