"""A process killed at any system call of any operation leaves the old version or the new one.

``strace`` sends SIGKILL at the n-th call of one kind, for every kind and n until the operation gets through.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.operations import OPERATIONS, State, base, state_of, tensor
from builders.traced import Zygote
from cortiq.container import grow, open_single, verify

# The kinds of calls operations make, and in how many places all of them together die of each kind at least. Most are
# far more on an ordinary machine; an unlink comes only when something has gone wrong.
KILLS = {
    "openat": 30,
    "flock": 18,
    "pread64": 90,
    "ftruncate": 4,
    "fallocate": 12,
    "pwrite64": 110,
    "fchmod": 4,
    "fsync": 24,
    "rename": 4,
    "unlink": 0,
    "close": 60,
}
pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("template") / "model.cmf")


@pytest.fixture(scope="module")
def new_states(zygote: Zygote, template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    """What each operation makes when nobody disturbs it."""
    folder = filled(tmp_path_factory.mktemp("new"), template, set(OPERATIONS))
    assert set(zygote.run(folder).values()) == {0}
    return {name: state_of(folder / f"{name}.cmf") for name in OPERATIONS}


def filled(folder: Path, template: Path, names: set[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copyfile(template, folder / f"{name}.cmf")
    return folder


def check_usable(path: Path) -> None:
    """The file verifies, grows again, and verifies again."""
    for again in (True, False):
        with open_single(path) as file:
            assert verify(file, require_hashes=True).ok
        if again:
            grow(path, add=[tensor("once.more", 100)])


@pytest.mark.parametrize("call", KILLS)
def test_killed_at_every(
    call: str, zygote: Zygote, template: Path, new_states: dict[str, State], tmp_path: Path
) -> None:
    old, running, number, kills = state_of(template), set(OPERATIONS), 0, 0
    seen: set[str] = set()
    while running:
        number += 1
        folder = filled(tmp_path / str(number), template, running)
        statuses = zygote.run_traced(folder, f"{call}:signal=KILL:when={number}")
        assert set(statuses) == running
        for name, status in statuses.items():
            assert status in (0, -signal.SIGKILL), (name, number)
            found = state_of(folder / f"{name}.cmf")
            assert found in (old, new_states[name]), (name, number)
            if status == 0:
                assert found == new_states[name]
                running.discard(name)
            else:
                kills += 1
                seen.add("new" if found == new_states[name] else "old")
                check_usable(folder / f"{name}.cmf")
    assert kills >= KILLS[call]
    if call == "fsync":
        assert seen == {"old", "new"}


def test_the_places_are_many() -> None:
    assert sum(KILLS.values()) >= 300


@pytest.mark.parametrize("call", ["pwrite64", "fsync", "flock"])
def test_interrupted_calls_go_on(
    call: str, zygote: Zygote, template: Path, new_states: dict[str, State], tmp_path: Path
) -> None:
    for number in (1, 2):
        folder = filled(tmp_path / str(number), template, set(OPERATIONS))
        statuses = zygote.run_traced(folder, f"{call}:error=EINTR:when={number}")
        assert set(statuses.values()) == {0}
        for name in OPERATIONS:
            assert state_of(folder / f"{name}.cmf") == new_states[name]
