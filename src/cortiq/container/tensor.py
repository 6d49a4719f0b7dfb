"""One tensor: its directory entry, and its bytes in the mapped file (SPEC 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.mapping import check_kept
from cortiq.layouts import layout

_VIEWABLE = {0: "<f4", 1: "<f2", 6: "u1"}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A record of the directory. ``off`` is relative to the data section, ``dtype`` the id of SPEC 3.1."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    off: int
    nbytes: int
    hash: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of an open file.

    ``raw`` is a read-only view of its bytes, which keeps the mapping alive.
    """

    entry: TensorEntry
    raw: memoryview

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def dtype(self) -> str:
        """Name of the dtype, such as ``q8_row``."""
        return layout(self.entry.dtype).name

    @property
    def nbytes(self) -> int:
        return self.entry.nbytes

    def validate(self) -> None:
        """Check the content as far as a decoder relies on it. Raises Parse or Bounds."""
        layout(self.entry.dtype).validate(self.raw, self.entry.shape)

    def numpy(self) -> NDArray[Any]:
        """f32, f16 and u8 as a read-only view of the file; every other dtype decoded to f32.

        Raises Parse or Bounds for content that does not decode, UnsupportedFeature for a dtype without a decoder,
        Changed.file when the file lost the bytes; of a view that can only be known afterwards, from ``check_kept``.
        """
        view = _VIEWABLE.get(self.entry.dtype)
        if view is not None:
            return np.frombuffer(self.raw, dtype=view).reshape(self.entry.shape)
        values = layout(self.entry.dtype).decode(self.raw, self.entry.shape)
        check_kept(self.raw)
        return values

    def __repr__(self) -> str:
        return f"Tensor({self.entry.name!r}, {self.dtype}, {list(self.entry.shape)})"
