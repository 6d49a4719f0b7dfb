"""Opening a model by its name: where it lies and how many files hold it."""

from __future__ import annotations

import os

from cortiq.container.file import File
from cortiq.container.reader import open_single
from cortiq.container.shards import open_set


def open(path: str | os.PathLike[str]) -> File:
    """Open a whole model: a CMF file, or the set of files that the one at ``path`` belongs to (SPEC 10).

    Raises as ``open_single``, and for a set as ``open_set``.
    """
    file = open_single(path)
    shard = file.header.shard
    return file if shard is None or shard.count == 1 else open_set(file)
