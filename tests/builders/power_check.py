"""Runs an operation, cuts the power everywhere, and counts what is left."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.operations import State, base, state_of, tensor
from builders.recorder import PowerLoss, Recorder, install
from cortiq.container import grow, open_single, verify
from cortiq.errors import CortiqError

_GROW_AGAIN = 8  # every so many different images


class Judge:
    """Says of the bytes of a file whether they are the old version, the new one, or neither."""

    def __init__(self, folder: Path, old: State, new: State) -> None:
        self.path = folder / "image.cmf"
        self.old, self.new = old, new
        self.known: dict[bytes, str] = {}

    def verdict(self, image: bytes | None) -> str:
        if image is None:
            return "absent"
        digest = hashlib.sha256(image).digest()
        if digest not in self.known:
            self.path.write_bytes(image)
            self.known[digest] = self._look()
        return self.known[digest]

    def _look(self) -> str:
        try:
            found = state_of(self.path)
        except CortiqError as error:
            return f"invalid: {error.kind}"
        if len(self.known) % _GROW_AGAIN == 0 and not self._grows():
            return "invalid: does not grow any more"
        return "old" if found == self.old else "new" if found == self.new else "invalid: neither"

    def _grows(self) -> bool:
        grow(self.path, add=[tensor("once.more", 100)])
        with open_single(self.path) as file:
            return verify(file, require_hashes=True, threads=1).ok


def cut_everywhere(
    operation: Callable[[Path], object], folder: Path, disk: Recorder, *, per_point: int, want: int = 0
) -> tuple[Counter[str], int]:
    """How many images of each verdict, and how many of them differ.

    Repeats with other random choices until ``want`` different ones are seen or 20 rounds are over.
    """
    (folder / "files").mkdir(parents=True)
    path = base(folder / "files" / "model.cmf")
    old = state_of(path)
    kept = folder / "before.cmf"
    shutil.copyfile(path, kept)
    cuts = [PowerLoss(folder / "files", seed) for seed in range(20)]
    with pytest.MonkeyPatch.context() as patch:
        install(patch, disk)
        operation(path)
    judge = Judge(folder, old, state_of(path))
    counts: Counter[str] = Counter()
    for cut in cuts:
        counts.update(judge.verdict(image) for image in cut.images(disk.steps, "model.cmf", per_point))
        if len(judge.known) >= want:
            break
    return counts, len(judge.known)
