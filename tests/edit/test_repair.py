"""Repair from the recovery record: what comes back, and what is said to be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import append, base, edit, state_of
from cortiq.container import open_single
from cortiq.edit.history import undo
from cortiq.edit.repair import repair
from cortiq.errors import CortiqError, Parse, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return base(tmp_path / "model.cmf")


def overwrite(path: Path, at: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def flip(path: Path, at: int) -> None:
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 0xFF]))


def problem_of(path: Path) -> str | None:
    try:
        open_single(path).close()
    except CortiqError as error:
        return error.kind
    return None


def test_a_whole_file_is_left_alone(path: Path) -> None:
    before = path.read_bytes()
    result = repair(path)
    assert (result.repaired, result.problem, result.lost, result.damaged) == (False, None, (), ())
    assert path.read_bytes() == before


@pytest.mark.parametrize("operation", [append, edit, undo], ids=["append", "edit", "undo"])
@pytest.mark.parametrize("back", [False, True])
def test_a_torn_envelope(path: Path, operation: object, back: bool) -> None:
    """Any mixture of the old and the new 128 bytes opens as one of them, or is repaired to the new one."""
    old, old_state = path.read_bytes()[:128], state_of(path)
    operation(path)  # type: ignore[operator]
    whole, new_state = path.read_bytes(), state_of(path)
    repaired = 0
    for cut in range(0, 129, 8):
        first, second = (old, whole[:128]) if back else (whole[:128], old)
        path.write_bytes(first[:cut] + second[cut:128] + whole[128:])
        problem = problem_of(path)
        if problem is not None:
            result = repair(path)
            assert result.repaired
            assert result.problem is not None
            assert result.problem.kind == problem
            assert result.lost == ()
            assert state_of(path) == new_state
            repaired += 1
        assert state_of(path) in (old_state, new_state)
    assert repaired


@pytest.mark.parametrize("junk", [bytes(128), b"\xff" * 128])
def test_an_envelope_that_is_gone(path: Path, junk: bytes) -> None:
    before = state_of(path)
    overwrite(path, 0, junk)
    assert repair(path).repaired
    assert state_of(path) == before


def test_a_directory_that_is_damaged_costs_the_last_change(path: Path) -> None:
    before = state_of(path)
    append(path)
    with open_single(path) as file:
        at = file.envelope.directory.offset
    flip(path, at + 30)
    result = repair(path)
    assert len(result.lost) == 1
    assert result.lost[0].startswith("add 2 tensors, header, masks (20")
    assert state_of(path) == before


def test_a_file_cut_short_goes_back_to_what_is_there(path: Path) -> None:
    before, size = state_of(path), path.stat().st_size
    append(path)
    path.write_bytes(path.read_bytes()[: size + 5000])
    assert repair(path).repaired
    assert state_of(path) == before


def test_a_version_whose_tensors_are_whole_comes_first(path: Path) -> None:
    before = state_of(path)
    append(path)
    with open_single(path) as file:
        at = file.envelope.data.offset + file.tensors["skill.b.w.x"].off
    flip(path, at)
    overwrite(path, 0, bytes(128))
    result = repair(path)
    assert result.damaged == ()
    assert len(result.lost) == 1
    assert state_of(path) == before


def test_damaged_tensors_are_named(path: Path) -> None:
    with open_single(path) as file:
        name = next(iter(file))
        at = file.envelope.data.offset + file.tensors[name].off
    flip(path, at)
    overwrite(path, 0, bytes(128))
    assert repair(path).damaged == (name,)
    open_single(path).close()


@pytest.mark.parametrize("content", [b"", b"x", bytes(128), bytes(5000)])
def test_nothing_to_repair_from(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.cmf"
    path.write_bytes(content)
    with pytest.raises(Parse) as caught:
        repair(path)
    assert caught.value.code == "unrecoverable"
    assert caught.value.path == str(path)
    assert path.read_bytes() == content


def test_a_file_that_never_grew(tmp_path: Path) -> None:
    path = two_layers().set("dir_hash", 1).save(tmp_path / "x.cmf")
    with pytest.raises(Parse, match="unrecoverable"):
        repair(path)


def test_a_record_that_is_damaged_is_not_used(path: Path) -> None:
    flip(path, path.stat().st_size - 20)
    overwrite(path, 0, bytes(128))
    with pytest.raises(Parse, match="unrecoverable"):
        repair(path)


def test_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UsageError, match="symlink"):
        repair(tmp_path / "link")


def test_a_signature_stays(path: Path) -> None:
    beside = path.with_name(path.name + ".sig")
    beside.write_text("{}")
    overwrite(path, 0, bytes(128))
    assert repair(path).repaired
    assert beside.exists()
