"""Going back and forth between the versions in a file (SPEC 9). Nothing is lost by it until a compaction."""

from __future__ import annotations

import os

from cortiq.container.history import History, Version, read_history, restore
from cortiq.container.locking import InPlace
from cortiq.container.reader import open_single


def log(path: str | os.PathLike[str]) -> History:
    """The versions in the file, the oldest first. Raises as ``open``."""
    with open_single(path) as file:
        return read_history(file)


def undo(path: str | os.PathLike[str], allowed: InPlace | None = None) -> Version:
    """Take the last change back, and the one before it the next time. Raises as ``restore``."""
    return restore(path, allowed=allowed)


def checkout(path: str | os.PathLike[str], number: int, allowed: InPlace | None = None) -> Version:
    """Make version ``number`` of the log the current one. Raises as ``restore``."""
    return restore(path, number, allowed=allowed)
