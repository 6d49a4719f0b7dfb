from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.cmf import Cmf, two_layers
from cortiq.container import File, open_single


@pytest.fixture
def cmf() -> Cmf:
    """A valid file with every kind of section."""
    return two_layers()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Cmf], File]]:
    """Opens the bytes of a built file."""
    files: list[File] = []

    def run(made: Cmf) -> File:
        files.append(open_single(made.save(tmp_path / f"{len(files)}.cmf")))
        return files[-1]

    yield run
    for file in files:
        file.close()
