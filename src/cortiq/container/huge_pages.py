"""Huge pages under a file that is written: fewer translations of addresses for who reads it from a mapping.

The system maps a file by 2 MiB where its page cache holds it in aligned pieces of 2 MiB. Bytes that are first read
through a mapping which asks for it come in such pieces, and stay in them when they are written. What is written before
it is read comes in pieces as small as the writes.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

HUGE_PAGE = 1 << 21
_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14, which the standard library does not name


def make_huge(fd: int, index: int) -> None:
    """Bring the ``index``-th 2 MiB of a file into the page cache as one piece, where the system can."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError), mmap.mmap(fd, HUGE_PAGE, prot=mmap.PROT_READ, offset=index * HUGE_PAGE) as mapped:
            mapped.madvise(mmap.MADV_HUGEPAGE)
            mapped.madvise(_POPULATE_READ)
