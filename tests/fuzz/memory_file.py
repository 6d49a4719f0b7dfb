"""A file in memory that readers open by a path."""

from __future__ import annotations

import os
from pathlib import Path


class MemoryFile:
    """``path`` names what was last ``put`` into it, as long as this lives."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("fuzz")
        self.path = Path(f"/proc/self/fd/{self._fd}")

    def put(self, data: bytes) -> Path:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)
        return self.path

    def close(self) -> None:
        os.close(self._fd)
