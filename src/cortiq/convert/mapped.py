"""A file mapped read-only, whose pages are given back as soon as they have been read."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.mapping import drop_pages
from cortiq.errors import SourceError

STAMPED = 1 << 16


class MappedFile:
    """``path`` mapped as a whole. Raises SourceError when it cannot be opened or is empty.

    ``stamp`` is another text when the file is another one.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.stamp = stamp_of(os.fstat(file.fileno()), self._map[:STAMPED])
        except (OSError, ValueError) as error:
            raise SourceError(f"{path.name} cannot be read: {error}", code="open", path=str(path)) from error
        self.size = len(self._map)

    def array(self, offset: int, nbytes: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A flat read-only view. The caller has checked the range."""
        return np.frombuffer(self._map, dtype=dtype, count=nbytes // dtype.itemsize, offset=offset)

    def release(self, offset: int, nbytes: int) -> None:
        """Drop the whole pages inside the range from memory; they come back from disk when touched again."""
        drop_pages(self._map, offset, nbytes)

    def close(self) -> None:
        """Unmap now, or when the last view is gone."""
        try:
            self._map.close()
        except BufferError:  # a view is alive: the map goes with it
            del self._map


def stamp_of(facts: os.stat_result, begin: bytes) -> str:
    """What changes when a file does: its size, when it was written, and the ``STAMPED`` bytes it begins with."""
    digest = hashlib.sha256(begin).hexdigest()[:16]
    return f"{facts.st_size} bytes, written at {facts.st_mtime_ns} ns, begins with {digest}"
