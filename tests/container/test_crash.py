"""A process killed at any system call of a write leaves the old file or the new one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builders.cmf import header
from builders.mask_sections import section
from cortiq.container import TensorSpec, open_single, verify, write_file
from cortiq.errors import InvalidMagic

CALLS = ("open", "ftruncate", "posix_fallocate", "pwrite", "fchmod", "fsync", "rename", "close")

# Writes to the path given, in a child that ends at its n-th system call, for n = 1, 2, ... until one lives.
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[3])
from test_crash import CALLS, write
folder, count = sys.argv[1], 0
while True:
    count += 1
    child = os.fork()
    if child == 0:
        left = [count]
        for name in CALLS:
            def run(*args, real=getattr(os, name), **more):
                left[0] -= 1
                if left[0] == 0:
                    os._exit(9)
                return real(*args, **more)
            setattr(os, name, run)
        write(os.path.join(folder, f"{count}.cmf"), "new")
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    write(os.path.join(folder, f"{count + 1}.cmf"), sys.argv[2])
print(count)
"""


def write(path: str | Path, name: str) -> None:
    tensors = [TensorSpec(f"{name}.{i}", 6, (5000,), 5000, [bytes([i]) * 2500] * 2) for i in range(3)]
    write_file(path, header(provenance={"tool": name}), tensors, vocab=b"{}", masks=section())


def test_killed_at_every_system_call(tmp_path):
    write(tmp_path / "1.cmf", "old")
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = f"import sys; sys.path[:0] = {here}\n{SCRIPT}"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "old", here[0]], capture_output=True, text=True, check=True
    )
    count = int(run.stdout)
    assert count > 15
    seen = {"old": 0, "new": 0}
    for i in range(1, count + 1):
        with open_single(tmp_path / f"{i}.cmf") as file:
            assert verify(file, strict=True).ok
            seen[file.header["provenance"]["tool"]] += 1
    assert seen["old"] > 10
    assert seen["new"] >= 2


def test_left_temporary_file_is_no_model(tmp_path):
    def end():
        yield bytes(2500)
        (leaked,) = tmp_path.iterdir()
        (tmp_path / "leaked").write_bytes(leaked.read_bytes())
        yield bytes(2500)

    write_file(tmp_path / "x.cmf", header(), [TensorSpec("t", 6, (5000,), 5000, end())])
    with pytest.raises(InvalidMagic, match="unfinished"):
        open_single(tmp_path / "leaked")
