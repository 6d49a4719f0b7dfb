"""The directory's records as columns (SPEC 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import FormatError

RECORD = np.dtype(
    [
        ("name_off", "<u4"),
        ("name_len", "<u2"),
        ("dtype", "u1"),
        ("ndim", "u1"),
        ("shape", "<u4", (6,)),
        ("off", "<u8"),
        ("nbytes", "<u8"),
        ("hash", "<u8"),
    ]
)
COUNTS_NBYTES = 16
MAX_NDIM = 6
ALIGNMENT = 64
TYPE_BYTES = slice(6, 32)  # dtype, ndim and shape of a record
CONTENT_BYTES = slice(6, 56)  # all of a record but its name


@dataclass(frozen=True, slots=True)
class RecordTable:
    """``records`` is a read-only array of ``RECORD``, ``names`` belong to it, ``base`` is the directory's offset."""

    records: NDArray[Any]
    names: tuple[str, ...]
    base: int

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> NDArray[Any]:
        """One field of every record."""
        column: NDArray[Any] = self.records[name]
        return column

    def bytes_of(self, part: slice) -> NDArray[np.uint8]:
        """The same bytes of every record, [records, length of ``part``]."""
        return self.records.view(np.uint8).reshape(-1, RECORD.itemsize)[:, part]

    def error(self, kind: type[FormatError], i: int, code: str, message: str, facts: tuple[Any, Any]) -> FormatError:
        """An error about record ``i``; ``facts`` is what was expected and what was found."""
        return kind(
            message,
            code=code,
            section="directory",
            tensor=self.names[i],
            offset=record_offset(self.base, i),
            expected=facts[0],
            found=facts[1],
        )


def record_offset(base: int, i: int) -> int:
    """Offset in the file of record ``i`` of a directory at ``base``."""
    return base + COUNTS_NBYTES + RECORD.itemsize * i


def first(mask: NDArray[np.bool_]) -> int | None:
    """Position of the first true element."""
    at = int(mask.argmax()) if mask.size else 0
    return at if mask.size and mask[at] else None
