"""Opening a model by its name: where it lies and how many files hold it."""

from __future__ import annotations

import os

from cortiq.container.file import File
from cortiq.container.reader import open_single
from cortiq.errors import UnsupportedFeature


def open(path: str | os.PathLike[str]) -> File:
    """Open a CMF file that holds a whole model: its path, or a URL (``cortiq.container.location``).

    Raises as ``open_single``, and UnsupportedFeature.shards for one file of a set.
    """
    file = open_single(path)
    shard = file.header.shard
    if shard is not None and shard.count > 1:
        file.close()
        raise UnsupportedFeature(
            f"this is file {shard.no} of a set of {shard.count}; shard sets are not supported yet",
            code="shards",
            path=os.fspath(path),
            section="header",
            expected="a model in one file",
            found=f"shard {shard.no} of {shard.count}",
        )
    return file
