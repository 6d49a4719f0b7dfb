"""Where a written file puts its sections and tensors (SPEC 1, 4): planned for a new file, recorded of an open one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cortiq.container.directory import encode_directory
from cortiq.container.envelope import NBYTES, PAGE, Envelope, Range
from cortiq.container.extents import gaps
from cortiq.container.file import File
from cortiq.container.records_table import ALIGNMENT

PAGE_ALIGNED_FROM = 16384
_SCAN = 1 << 22


@dataclass(frozen=True, slots=True)
class BlobLayout:
    """Positions of everything.

    ``envelope``   all sections, flags and features; a hash of 0 means that the file shall state none, any other
                   value is replaced by the right one
    ``offsets``    one per tensor in directory order, relative to the data section
    ``size``       bytes of the file
    ``directory``  the directory to write when its names are not pooled the usual way, else None
    ``residue``    bytes that belong to nothing but are kept, with their offsets
    """

    envelope: Envelope
    offsets: tuple[int, ...]
    size: int
    directory: bytes | None = None
    residue: tuple[tuple[int, memoryview], ...] = ()


@dataclass(frozen=True, slots=True)
class SectionSizes:
    """Bytes of the sections of a new file; 0 means absent."""

    header: int
    directory: int
    masks: int = 0
    vocab: int = 0
    index: int = 0


def plan_layout(sizes: SectionSizes, tensors: Sequence[int], features: int) -> BlobLayout:
    """The layout of a new file with tensors of these sizes: no gap but for alignment.

    The header is at 128 and the directory behind it; the data section is page-aligned, in it tensors of 16 KiB or
    more are page-aligned and the others aligned to 64; masks, vocab and index follow without a gap.
    """
    header = Range(NBYTES, sizes.header)
    directory = Range(header.end, sizes.directory)
    offsets, end = [], 0
    for nbytes in tensors:
        offset = align(end, PAGE if nbytes >= PAGE_ALIGNED_FROM else ALIGNMENT)
        offsets.append(offset)
        end = offset + nbytes
    data = Range(align(directory.end, PAGE), end)
    masks = _behind(data.end, sizes.masks)
    vocab = _behind(data.end + sizes.masks, sizes.vocab)
    index = _behind(data.end + sizes.masks + sizes.vocab, sizes.index)
    envelope = Envelope(header, directory, data, masks, vocab, index, features, header_hash=1, directory_hash=1)
    return BlobLayout(envelope, tuple(offsets), data.end + sizes.masks + sizes.vocab + sizes.index)


def record_layout(file: File) -> BlobLayout:
    """The layout of an open file: written again with it, the same content gives the same bytes.

    Reads the bytes between sections and tensors.
    """
    entries = list(file.tensors.values())
    usual = encode_directory(entries) == file.tensors.raw
    residue = tuple((gap.offset, file.view(gap)) for gap in gaps(file) if not is_zero(file.view(gap)))
    offsets = tuple(entry.off for entry in entries)
    return BlobLayout(file.envelope, offsets, file.size, None if usual else file.tensors.raw, residue)


def align(offset: int, to: int) -> int:
    """The smallest multiple of ``to`` that is not below ``offset``."""
    return -(-offset // to) * to


def _behind(offset: int, nbytes: int) -> Range:
    return Range(offset, nbytes) if nbytes else Range(0, 0)


def is_zero(data: memoryview) -> bool:
    """True when every byte is zero."""
    parts = (data[at : at + _SCAN] for at in range(0, len(data), _SCAN))
    return all(part.tobytes() == bytes(len(part)) for part in parts)
