"""A conversion in attempts, killed at any system call or cut off the power at any moment, ends in the same bytes.

Until it does, the target is the old file. A payload that has a line in the journal is never made again.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.operations import base, convert_in_attempts, convert_over, state_of
from builders.recorder import PowerLoss, Recorder, install
from builders.traced import Zygote
from cortiq.container.partial import partial_path
from crash.test_kill import KILLS

TENSORS = 12

traced = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("old") / "model.cmf")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a conversion in one go makes."""
    path = tmp_path_factory.mktemp("expected") / "attempts.cmf"
    convert_over(path)
    return path.read_bytes()


def begun(folder: Path, old: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(shutil.copyfile(old, folder / "attempts.cmf"))


@traced
@pytest.mark.parametrize("call", KILLS)
def test_killed_at_every(call: str, zygote: Zygote, old: Path, expected: bytes, tmp_path: Path) -> None:
    number, before = 0, state_of(old)
    while True:
        number += 1
        path = begun(tmp_path / str(number), old)
        status = zygote.run_traced(path.parent, f"{call}:signal=KILL:when={number}")["attempts"]
        assert path.read_bytes() == expected or state_of(path) == before
        if status == 0:
            break
        assert status == -signal.SIGKILL
        assert zygote.run(path.parent)["attempts"] == 0
        assert path.read_bytes() == expected
        assert [p.name for p in path.parent.iterdir()] == [path.name]
    if call in ("pwrite64", "fsync"):
        assert number > 2 * TENSORS


@traced
@pytest.mark.parametrize(("call", "number"), [("pwrite64", 18), ("fsync", 9)])
def test_killed_again_and_again(
    call: str, number: int, zygote: Zygote, old: Path, expected: bytes, tmp_path: Path
) -> None:
    """Every attempt gets a little further."""
    path, attempts = begun(tmp_path, old), 0
    while zygote.run_traced(tmp_path, f"{call}:signal=KILL:when={number}")["attempts"]:
        attempts += 1
        assert attempts < 2 * TENSORS
    assert attempts >= 2, "the first attempt gets through"
    assert path.read_bytes() == expected
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_power_goes(share: float, old: Path, expected: bytes, tmp_path: Path) -> None:
    """``share`` of the sectors that are not synced reach the disk."""
    path = begun(tmp_path / "files", old)
    disk, cut = Recorder(), PowerLoss(path.parent, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        install(patch, disk)
        convert_in_attempts(path)
    end = next(at for at, step in enumerate(disk.steps) if step.kind == "rename")
    partial = disk.steps[end].inode
    (journal,) = {step.inode for step in disk.steps[:end] if step.inode} - {partial}
    for point in range(1, end + 1, 3):
        steps, image = disk.steps[:point], begun(tmp_path / "image", old)
        left = partial_path(image)
        left.write_bytes(cut.content(steps, partial, share))
        left.with_name(left.name + ".journal").write_bytes(cut.content(steps, journal, share))
        notes = [note for note in convert_in_attempts(image).warnings if "interrupted" in note]
        lines = sum((step.kind, step.inode) == ("sync", journal) for step in steps)
        assert (int(notes[0].split()[0]) if notes else 0) >= lines - 1
        assert image.read_bytes() == expected
        assert [p.name for p in image.parent.iterdir()] == [image.name]
