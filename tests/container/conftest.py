from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.cmf import Cmf, two_layers
from cortiq.container import File, open_single
from cortiq.errors import CortiqError

Refuse = Callable[..., CortiqError]


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


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """Opens damaged bytes, wants one error of the tree of exactly this kind, and gives it back."""

    def run(made: Cmf | bytes, kind: str, *, size: int | None = None) -> CortiqError:
        path = tmp_path / "bad.cmf"
        path.write_bytes(made.data if isinstance(made, Cmf) else made)
        if size is not None:
            with path.open("r+b") as stream:
                stream.truncate(size)
        with pytest.raises(CortiqError) as caught:
            open_single(path)
        error = caught.value
        assert error.kind == kind, str(error)
        assert error.path == str(path)
        assert error.section is not None
        assert error.offset is not None
        assert error.expected is not None
        assert error.found is not None
        return error

    return run
