"""The directory as a model reads it: a tensor by its role, with the shape the architecture demands (SPEC 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from cortiq.errors import MissingTensor, Parse, ShapeMismatch

NO_VECTOR = -1  # where a plan op takes an optional vector
_U8 = 6


class Entry(Protocol):
    """What is needed of a directory entry."""

    @property
    def dtype(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Weights:
    """Names, dtypes and shapes of a file's tensors. ``required`` lookups return the name they were asked for."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> Iterable[str]:
        """All names in directory order."""
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of ``name``. Raises MissingTensor."""
        return self._entry(name).shape

    def matrix(self, name: str, rows: int, cols: int) -> str:
        """``name``, after checking that it is a weight of shape [rows, cols].

        Raises MissingTensor, Parse (``dtype_role``) for raw bytes in the place of weights, ShapeMismatch.
        """
        entry = self._entry(name)
        if entry.shape != (rows, cols):
            raise _mismatch(name, (rows, cols), entry.shape)
        return name

    def vector(self, name: str, length: int) -> str:
        """``name``, after checking that it holds ``length`` values: [length], or the same with axes of 1 before it.

        Raises as :meth:`matrix`.
        """
        entry = self._entry(name)
        if not entry.shape or entry.shape[-1] != length or math.prod(entry.shape) != length:
            raise _mismatch(name, (length,), entry.shape)
        return name

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise MissingTensor("the architecture needs this tensor", code="tensor", tensor=name)
        if entry.dtype == _U8:
            raise Parse("raw bytes (u8) in the place of a weight", code="dtype_role", tensor=name)
        return entry


def _mismatch(name: str, expected: tuple[int, ...], found: tuple[int, ...]) -> ShapeMismatch:
    return ShapeMismatch("wrong shape", code="shape", tensor=name, expected=str(list(expected)), found=str(list(found)))
