"""A power cut while a set is written leaves the old set, the new one, or none that opens: never tensors of both."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from builders.cmf import header
from builders.operations import state_of_set, tensor, write_set
from builders.recorder import PowerLoss, Recorder, install
from cortiq.container.shard_writer import write_shards


@pytest.mark.parametrize("before", ["nothing", "another"])
def test_old_or_new_or_none(before: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    folder, disk = tmp_path / "files", Recorder()
    folder.mkdir()
    if before == "another":
        specs = [tensor("a", 9000, 7), tensor("b", 5000, 8), tensor("c", 9000, 9)]
        write_shards(folder / "set", header(), specs, 36_000)
    old = state_of_set(folder)
    cut = PowerLoss(folder)
    with pytest.MonkeyPatch.context() as patch:
        install(patch, disk)
        write_set(folder / "set")
    verdicts = {old: "old", state_of_set(folder): "new"}
    counts, image = Counter[str](), tmp_path / "image"
    for names in cut.folders(disk.steps, per_point=100 if long else 22):
        image.mkdir()
        for name, content in names.items():
            (image / name).write_bytes(content)
        found = state_of_set(image)
        counts[verdicts.get(found, str(found))] += 1
        shutil.rmtree(image)
    # Between the first name and the last the old first file stands before new others.
    assert set(counts) == ({"old", "new"} if before == "nothing" else {"old", "new", "Shard.set_mismatch"})
    assert counts.total() >= (2000 if long else 500), counts
