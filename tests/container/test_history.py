"""The versions in a file and the way between them (SPEC 9)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import State, edit, state_of, tensor
from cortiq.container import grow, open_single, verify
from cortiq.container.history import newest_record, read_history, restore
from cortiq.container.recovery import MAGIC, RECORD_NBYTES
from cortiq.edit.history import checkout, log, undo
from cortiq.errors import HashMismatch, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


@pytest.fixture
def states(path: Path) -> list[State]:
    """Four versions of the file: as built, a tensor, the header, no norm."""
    found = [state_of(path)]
    for change in (
        lambda: grow(path, add=[tensor("a")], what="add a"),
        lambda: edit(path),
        lambda: grow(path, remove=["model.norm.weight"], what="remove norm"),
    ):
        change()
        found.append(state_of(path))
    return found


def test_a_fresh_file_has_one_version(path: Path) -> None:
    history = log(path)
    assert history.complete
    assert [(v.number, v.time, v.what, v.same_as) for v in history.versions] == [(1, None, None, 1)]
    with pytest.raises(UsageError, match="nothing to undo") as caught:
        undo(path)
    assert caught.value.code == "undo"


def test_log(path: Path, states: list[State]) -> None:
    history = log(path)
    assert history.complete
    assert len(states) == 4
    assert [v.what for v in history.versions[1:]] == [
        "add a",
        "edit: set tokenizer_config.chat_template",
        "remove norm",
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", v.time or "") for v in history.versions[1:])
    assert [v.number for v in history.versions] == [v.same_as for v in history.versions] == [1, 2, 3, 4]


def test_undo_goes_back_step_by_step(path: Path, states: list[State]) -> None:
    for number in (3, 2, 1):
        assert undo(path).number == number
        assert state_of(path) == states[number - 1]
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(path)
    assert [v.same_as for v in log(path).versions] == [1, 2, 3, 4, 3, 2, 1]


def test_checkout_goes_anywhere(path: Path, states: list[State]) -> None:
    for number in (1, 4, 2, 3, 4):
        if state_of(path) != states[number - 1]:
            checkout(path, number)
        assert state_of(path) == states[number - 1]
        with open_single(path) as file:
            assert verify(file, require_hashes=True).ok
    checkout(path, 5)  # a version that was itself a way back
    assert state_of(path) == states[0]


def test_growth_after_undo(path: Path, states: list[State]) -> None:
    undo(path)
    grow(path, add=[tensor("b")], what="add b")
    assert undo(path).number == 3
    assert state_of(path) == states[2]
    assert undo(path).number == 2


@pytest.mark.parametrize("number", [0, 5, -1])
def test_no_such_version(path: Path, states: list[State], number: int) -> None:
    with pytest.raises(UsageError, match="no such version") as caught:
        checkout(path, number)
    assert caught.value.code == "version"
    assert len(states) == 4


def test_the_current_version_is_refused(path: Path, states: list[State]) -> None:
    with pytest.raises(UsageError) as caught:
        checkout(path, len(states))
    assert caught.value.code == "current"


def test_a_version_that_is_damaged_is_refused(path: Path, states: list[State]) -> None:
    with open_single(path) as file:
        head = log(path).version(2).head
        old = int.from_bytes(head[32:40], "little")  # its directory
        assert old != file.envelope.directory.offset
    data = bytearray(path.read_bytes())
    data[old + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(HashMismatch):
        checkout(path, 2)
    assert state_of(path) == states[3]


def test_dead_tail_behind_the_newest_record(path: Path, states: list[State]) -> None:
    """What a process left that was killed while it appended hides nothing."""
    for garbage in (b"\xaa" * 5000, MAGIC * 100, b"\0" * (5 << 20)):
        with path.open("ab") as stream:
            stream.write(garbage)
        assert [v.what for v in log(path).versions][1] == "add a"
        undo(path)
        grow(path, add=[tensor("z")], what="again")
        undo(path)
        assert log(path).complete
    assert state_of(path) == states[0]


def test_a_record_not_committed_is_no_version(path: Path, states: list[State]) -> None:
    data = path.read_bytes()
    undo(path)
    after = path.read_bytes()
    path.write_bytes(data[:128] + after[128:])  # the record is there, the envelope is not
    history = log(path)
    assert len(history.versions) == 4
    assert history.complete
    assert state_of(path) == states[3]


def test_a_damaged_record_ends_the_log(path: Path, states: list[State]) -> None:
    with open_single(path) as file:
        newest = newest_record(file)
        assert newest is not None
        middle = newest.previous
        assert middle is not None
    data = bytearray(path.read_bytes())
    data[middle + 20] ^= 1
    path.write_bytes(data)
    history = log(path)
    assert not history.complete
    assert len(history.versions) == 2
    assert restore(path).number == 1
    assert state_of(path) == states[2]


def test_a_damaged_note_costs_the_note(path: Path) -> None:
    grow(path, add=[tensor("a")], what="add a")
    data = bytearray(path.read_bytes())
    data[len(data) - RECORD_NBYTES - 20] ^= 1
    path.write_bytes(data)
    history = log(path)
    assert [v.what for v in history.versions] == [None, None]
    assert not history.complete
    assert undo(path).number == 1


def test_history_of_an_open_file_is_that_of_its_snapshot(path: Path) -> None:
    with open_single(path) as file:
        grow(path, add=[tensor("a")])
        assert len(read_history(file).versions) == 1
