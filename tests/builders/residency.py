"""Which pages of a file are in memory, by mincore(2)."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np


def resident_pages(path: Path, start: int) -> int | None:
    """Pages of the file from ``start`` on that are in the page cache; None where the system does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mincore"):
        return None
    with path.open("r+b") as stream:
        size = os.fstat(stream.fileno()).st_size
        with mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            address = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
            pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
                return None
    return sum(page & 1 for page in pages[start // mmap.PAGESIZE :])
