"""hash64 of buffers and streams by the fastest code there is: the native core when it is built, else NumPy."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cortiq.container import hash64 as definition
from cortiq.container.hash64 import Buffer
from cortiq.errors import NativeMissing

native: ModuleType | None
try:
    from cortiq.native import core as native
except NativeMissing:  # the container works without the core
    native = None


def hash64(data: Buffer, threads: int = 1) -> int:
    """hash64 of a contiguous buffer (SPEC 8). NumPy uses one thread."""
    if native is not None:
        found: int = native.hash64(data, threads)
        return found
    return definition.hash64(data)


class StreamHash:
    """hash64 of a stream of chunks of any length."""

    __slots__ = ("_rest", "_state", "_threads")

    def __init__(self, threads: int = 1) -> None:
        self._state: Any = definition.Hash64() if native is None else native.Hash64()
        self._threads = threads
        self._rest = b""

    def update(self, data: memoryview) -> None:
        """Append a flat view of bytes."""
        if self._rest:
            needed = min(8 - len(self._rest), len(data))
            self._rest += bytes(data[:needed])
            data = data[needed:]
            if len(self._rest) == 8:
                self._append(memoryview(self._rest))
                self._rest = b""
        whole = len(data) // 8 * 8
        if whole:
            self._append(data[:whole])
        if whole < len(data):
            self._rest += bytes(data[whole:])

    def digest(self) -> int:
        """The hash of the whole stream. Ends it."""
        if self._rest:
            self._append(memoryview(self._rest))
            self._rest = b""
        found: int = self._state.digest()
        return found

    def _append(self, data: memoryview) -> None:
        if native is None:
            self._state.update(data)
        else:
            self._state.update(data, self._threads)
