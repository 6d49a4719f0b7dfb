"""CI fails on a skip nobody expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

def test_runs(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_skips(n): pytest.skip("the reason")

@pytest.mark.xfail(strict=True)
def test_fails(): assert False
"""


def told(*numbers: int) -> list[str]:
    return [f"test_some.py::test_skips[{n}]: Skipped: the reason" for n in numbers]


@pytest.mark.parametrize(
    ("allowed", "code", "lines"),
    [
        (None, 0, []),
        (
            "",
            1,
            told(1, 2),
        ),
        ("test_some.py::test_skips[[]1]", 1, told(2)),
        ("# why\ntest_some.py::test_skips*  # because", 0, []),
    ],
)
def test_unexpected_skips_fail(tmp_path: Path, allowed: str | None, code: int, lines: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "allowed.txt").write_text(allowed or "")
    option = [] if allowed is None else ["--allowed-skips=allowed.txt"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *option, "."]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == code, run.stdout
    assert [line for line in run.stdout.splitlines() if "Skipped: the reason" in line] == lines
