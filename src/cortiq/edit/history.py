"""Going back and forth between the versions in a file (SPEC 9). Nothing is lost by it until a compaction."""

from __future__ import annotations

import os

from cortiq.container.file import File
from cortiq.container.history import History, Version, read_history, restore
from cortiq.container.locking import InPlace
from cortiq.container.mapping import open_regular
from cortiq.container.reader import open_descriptor, open_single
from cortiq.errors import CortiqError


def log(path: str | os.PathLike[str]) -> History:
    """The versions in the file, the oldest first. Raises as ``open``."""
    with open_single(path) as file:
        return read_history(file)


def open_version(path: str | os.PathLike[str], number: int) -> File:
    """The file as version ``number`` of the log. Raises as ``open_single``, and UsageError.version."""
    fd = open_regular(path)
    try:
        with open_descriptor(fd, path) as file:
            version = read_history(file).version(number)
        return open_descriptor(fd, path, version.head)
    except CortiqError as error:
        error.path = error.path or os.fspath(path)
        raise
    finally:
        os.close(fd)


def undo(path: str | os.PathLike[str], allowed: InPlace | None = None) -> Version:
    """Take the last change back, and the one before it the next time. Raises as ``restore``."""
    return restore(path, allowed=allowed)


def checkout(path: str | os.PathLike[str], number: int, allowed: InPlace | None = None) -> Version:
    """Make version ``number`` of the log the current one. Raises as ``restore``."""
    return restore(path, number, allowed=allowed)
