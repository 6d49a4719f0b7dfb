"""A power cut at any moment, with any of the unsynced sectors on the disk, leaves the old version or the new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.operations import OPERATIONS
from builders.power_check import cut_everywhere
from builders.recorder import Recorder

# Different images an operation must yield; an undo writes two sectors and the envelope, so there are few.
IMAGES = {"append": 250, "edit": 60, "undo": 8, "compact": 150, "write": 100}


@pytest.mark.parametrize("name", OPERATIONS)
def test_old_or_new(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    per_point, want = (40, 2000) if long else (4, IMAGES[name])
    counts, different = cut_everywhere(OPERATIONS[name], tmp_path, Recorder(), per_point=per_point, want=want)
    assert set(counts) == {"old", "new"}, counts
    assert different >= IMAGES[name]
    assert counts.total() >= (2000 if long else IMAGES[name])


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


def test_it_sums_to_500_images() -> None:
    assert sum(IMAGES.values()) >= 500
