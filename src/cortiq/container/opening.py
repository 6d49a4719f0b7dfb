"""Opening a model by its name: where it lies and how many files hold it."""

from __future__ import annotations

import os

from cortiq.container.file import File
from cortiq.container.location import is_url
from cortiq.container.reader import open_single
from cortiq.container.shards import open_set
from cortiq.errors import UnsupportedFeature


def open(path: str | os.PathLike[str]) -> File:
    """Open a whole model: a CMF file, its path or URL, or the set that the file at ``path`` belongs to (SPEC 10).

    Raises as ``open_single``, for a set as ``open_set``, and UnsupportedFeature.shards for a set at a URL.
    """
    file = open_single(path)
    shard = file.header.shard
    if shard is None or shard.count == 1:
        return file
    if is_url(path):
        file.close()
        raise UnsupportedFeature(
            f"this is file {shard.no} of a set of {shard.count}; a set is not read from afar",
            code="shards",
            path=os.fspath(file.path),
            section="header",
            expected="a model in one file",
            found=f"shard {shard.no} of {shard.count}",
        )
    return open_set(file)
