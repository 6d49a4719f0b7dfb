"""What the files of a set are called: ``{base}-{no:05}-of-{count:05}.cmf`` (SPEC 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_SHARD = re.compile(r"(?P<base>.*)-(?P<no>\d{5,6})-of-(?P<count>\d{5,6})\.cmf", re.DOTALL)


def shard_name(base: str, no: int, count: int) -> str:
    """Name of file ``no`` of ``count``."""
    return f"{base}-{no:05}-of-{count:05}.cmf"


def split_shard_name(name: str) -> tuple[str, int, int] | None:
    """(base, no, count) of the name of a file of a set, None for any other name."""
    found = _SHARD.fullmatch(name)
    return None if found is None else (found["base"], int(found["no"]), int(found["count"]))


def shard_base(path: Path) -> str:
    """What the files of a set made of ``path``, or to be written as ``path``, have in common."""
    found = split_shard_name(path.name)
    return found[0] if found is not None else path.name.removesuffix(".cmf")


def files_of_sets(folder: Path, base: str) -> Iterator[Path]:
    """The files of all sets of this base that a folder has, of whatever count. None for a folder that is not there."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            found = split_shard_name(path.name)
            if found is not None and found[0] == base:
                yield path
