"""A power cut at any moment, with any of the unsynced sectors on the disk, leaves the old version or the new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.operations import OPERATIONS, base, tensor
from builders.power_check import cut_everywhere
from builders.recorder import Recorder, install
from cortiq.container import InPlace, grow
from cortiq.edit.compact import compact

# Different images an operation must yield at least. An undo writes two sectors and the envelope, so there are few; a
# full write never shows a part of a file under its name.
DIFFERENT = {
    "append": 250,
    "edit": 60,
    "undo": 8,
    "checkout": 8,
    "compact": 2,
    "write": 2,
    "skill-add": 150,
    "skill-replace": 250,
    "skill-remove": 60,
    "masks-add": 60,
    "masks-remove": 40,
    "requant": 2,
    "convert": 2,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_old_or_new(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    counts, different = cut_everywhere(
        OPERATIONS[name], tmp_path, Recorder(), per_point=60 if long else 16, want=DIFFERENT[name]
    )
    # A compaction changes nothing a reader sees.
    assert set(counts) == ({"old"} if name == "compact" else {"old", "new"}), counts
    assert different >= DIFFERENT[name]
    assert counts.total() >= (2000 if long else 500)


def test_steps_of_a_growth_are_the_protocol(tmp_path: Path) -> None:
    """Tail, record, barrier, 128 bytes at 0 in one write, barrier."""
    disk = Recorder()
    cut_everywhere(OPERATIONS["append"], tmp_path, disk, per_point=0)
    kinds = [step.kind for step in disk.steps]
    assert kinds[0] == "allocate"
    assert kinds[-3:] == ["sync", "write", "sync"]
    assert set(kinds[1:-3]) == {"write"}
    envelope = disk.steps[-2]
    assert (envelope.offset, len(envelope.data)) == (0, 128)
    assert min(step.offset for step in disk.steps[1:-3]) >= disk.steps[0].size - 20_000
    assert disk.steps[-4].data[-272:-264] == b"CMFJRNL1"


@pytest.mark.parametrize("name", ["append", "compact"])
def test_a_signature_is_gone_before_it_is_wrong(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name goes, for good, before the first byte of the new version can be seen."""
    path = base(tmp_path / "model.cmf")
    path.with_name("model.cmf.sig").write_text("{}")
    disk, allowed = Recorder(), InPlace(drop_signature=True)
    install(monkeypatch, disk)
    if name == "append":
        grow(path, add=[tensor("t")], allowed=allowed)
    else:
        compact(path, allowed=allowed)
    kinds = [step.kind for step in disk.steps]
    dropped = kinds.index("rename")
    assert disk.steps[dropped].target == "model.cmf.sig.stale"
    assert kinds[dropped + 1] == "sync_dir"
    seen = kinds.index("rename", dropped + 1) if name == "compact" else kinds.index("write", dropped)
    assert seen > dropped + 1
    if name == "append":
        assert kinds[dropped - 1 :] == ["sync", "rename", "sync_dir", "write", "sync"]
