"""Recovery records: their bytes, finding them, and notes that nobody may trust (SPEC 9)."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from builders.cmf import two_layers
from builders.operations import tensor
from cortiq.container import grow, recovery
from cortiq.container.hash64 import hash64
from cortiq.container.recovery import MAGIC, MAX_NOTE, RECORD_NBYTES, record_at, records
from cortiq.edit.history import log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


def test_bytes(path: Path) -> None:
    """Magic, both envelopes, hash64 of these; in front of it the note, its size and its hash64."""
    before = path.read_bytes()[:128]
    grow(path, add=[tensor("a")], what="add a")
    data = path.read_bytes()
    record = data[-272:]
    body = b"CMFJRNL1" + before + data[:128]
    assert record == body + struct.pack("<Q", hash64(body))
    nbytes, digest = struct.unpack("<QQ", data[-288:-272])
    note = data[-288 - nbytes : -288]
    assert digest == hash64(note)
    assert json.loads(note).keys() == {"time", "what", "previous"}
    assert json.loads(note)["what"] == "add a"


@pytest.mark.parametrize("note", [b"[1]", b"{", b'{"time":1,"what":[],"previous":"x"}', b'{"previous":99999999}'])
def test_a_hostile_note(path: Path, note: bytes) -> None:
    grow(path, add=[tensor("a")])
    data = path.read_bytes()
    record = data[-RECORD_NBYTES:]
    tail = note + len(note).to_bytes(8, "little") + hash64(note).to_bytes(8, "little") + record
    path.write_bytes(data[:-RECORD_NBYTES] + tail)
    assert len(log(path).versions) == 2
    huge = (2**63).to_bytes(8, "little") + bytes(8) + record
    path.write_bytes(data[:-RECORD_NBYTES] + huge)
    assert len(log(path).versions) == 2


def test_a_long_description_is_cut(path: Path) -> None:
    grow(path, add=[tensor("a")], what="ä" * 10_000)
    what = log(path).versions[1].what
    assert what is not None
    assert set(what) == {"ä"}
    assert len(what) <= MAX_NOTE


def test_records_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    for i in range(4):
        grow(path, add=[tensor(f"t{i}", 100)])
    data = memoryview(path.read_bytes() + b"tail")
    expected = [record.offset for record in records(data)]
    assert len(expected) == 4
    assert expected == sorted(expected, reverse=True)
    for chunk in (1, 7, 64, 1000):
        monkeypatch.setattr(recovery, "_CHUNK", chunk)
        assert [record.offset for record in records(data)] == expected


@pytest.mark.parametrize("offset", [-1, 0, 10**9])
def test_no_record(offset: int) -> None:
    assert record_at(memoryview(MAGIC + bytes(RECORD_NBYTES)), offset) is None
