"""A process killed at any system call while it writes a set leaves the old set, the new one, or none that opens.

There is never a model with tensors of both. What is left over is written over by the next attempt.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from builders.cmf import header
from builders.operations import state_of_set, tensor, write_set
from builders.traced import Zygote
from cortiq.container.shard_writer import write_shards
from crash.test_kill import KILLS

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set of the same names, of another model."""
    folder = tmp_path_factory.mktemp("old")
    specs = [tensor("a", 9000, 7), tensor("b", 5000, 8), tensor("c", 9000, 9)]
    assert len(write_shards(folder / "set", header(), specs, 36_000).paths) == 3
    return folder


@pytest.mark.parametrize("call", KILLS)
@pytest.mark.parametrize("before", ["nothing", "another"])
def test_killed_at_every(call: str, before: str, zygote: Zygote, old: Path, tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    new, number, seen, kills = state_of_set(tmp_path), 0, Counter[str](), 0
    names = {new: "new", (state_of_set(old) if before == "another" else "none"): "old"}
    while True:
        number += 1
        folder = tmp_path / str(number)
        if before == "nothing":
            folder.mkdir()
        else:
            shutil.copytree(old, folder)
        (folder / "set.cmf").touch()  # says which operation to run
        status = zygote.run_traced(folder, f"{call}:signal=KILL:when={number}")["set"]
        found = state_of_set(folder)
        if status == 0:
            assert found == new
            break
        assert status == -signal.SIGKILL
        kills += 1
        # Between the first name and the last the old first file stands before new others.
        assert found in names or (found == "Shard.set_mismatch" and before == "another"), number
        seen[names.get(found, "mixed")] += 1
        write_set(folder / "set")
        assert state_of_set(folder) == new
    if call in ("pwrite64", "fsync"):
        assert kills >= 5
    if call == "rename":
        # The first kill comes before anything has a name, the others between the names.
        assert dict(seen) == ({"old": 3} if before == "nothing" else {"old": 1, "mixed": 2})
