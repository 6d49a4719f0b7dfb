"""Opening a CMF file (SPEC 1.2): everything the envelope, header and directory let us know is checked, once.

The blob is not touched. A file is either valid or ``open`` raises one error of ``cortiq.errors``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from cortiq.container.arch import Arch
from cortiq.container.directory import Directory, parse_directory
from cortiq.container.envelope import NBYTES, Envelope, Range, parse_envelope
from cortiq.container.features import Feature
from cortiq.container.file import File
from cortiq.container.hashing import hash64
from cortiq.container.header import Header, parse_header
from cortiq.container.mapping import Mapping, open_regular
from cortiq.container.mask_meta import COUNTS_NBYTES, MaskMeta, meta_nbytes, parse_mask_meta
from cortiq.errors import Bounds, Changed, CortiqError, HashMismatch, Parse

_ATTEMPTS = 8
_Metadata = tuple[Envelope, Header, Directory, MaskMeta | None]
_PAUSE = 0.001


def open_single(path: str | os.PathLike[str]) -> File:
    """Open one CMF file, also one of a set of shards.

    Raises a FormatError, HashMismatch for a header or directory that does not match its stored hash, OSError when
    the system cannot open the file, and UsageError.not_regular.
    """
    return _opened(open_regular(path), path)


def open_descriptor(fd: int, path: str | os.PathLike[str], head: bytes | None = None) -> File:
    """The file behind a descriptor, which stays the caller's, as its envelope describes it or as ``head`` does.

    ``head`` is 128 bytes that were the envelope once (SPEC 9). Raises as ``open_single``.
    """
    return _opened(os.dup(fd), path, head)


def _opened(fd: int, path: str | os.PathLike[str], head: bytes | None = None) -> File:
    """Takes over the descriptor."""
    try:
        # Without read-ahead, so that looking at the head of a file does not load what follows it.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        envelope, header, directory, mask_meta = _read_snapshot(fd) if head is None else _read_metadata(fd, head)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
        mapping = Mapping(fd)
    except CortiqError as error:
        os.close(fd)
        error.path = error.path or os.fspath(path)
        raise
    except BaseException:
        os.close(fd)
        raise
    return File(Path(path), envelope, header, directory, mapping, mask_meta)


def _read_snapshot(fd: int) -> _Metadata:
    """Read the metadata; again when another process grew the file in between (SPEC 9)."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        head = os.pread(fd, NBYTES, 0)
        try:
            return _read_metadata(fd, head)
        except CortiqError:
            if os.pread(fd, NBYTES, 0) == head:
                raise
    raise Changed("the file is being rewritten", code="file", section="envelope", offset=0)


def _read_metadata(fd: int, head: bytes) -> _Metadata:
    envelope = parse_envelope(head, os.fstat(fd).st_size)
    raw_header = _read_section(fd, "header", envelope.header, envelope.header_hash)
    raw_directory = _read_section(fd, "directory", envelope.directory, envelope.directory_hash)
    header = parse_header(raw_header, envelope.header.offset)
    _check_skill_bit(envelope, header)
    return envelope, header, parse_directory(raw_directory, envelope), _read_mask_meta(fd, envelope.masks, header.arch)


def _read_mask_meta(fd: int, part: Range, arch: Arch) -> MaskMeta | None:
    """What the masks section says of its masks, without their bits."""
    if part.nbytes == 0:
        return None
    counts = _read_section(fd, "masks", Range(part.offset, min(part.nbytes, COUNTS_NBYTES)), 0)
    end = meta_nbytes(counts, part.nbytes, part.offset)
    head = _read_section(fd, "masks", Range(part.offset, end), 0)
    return parse_mask_meta(head, part.nbytes, arch, part.offset)


def _read_section(fd: int, name: str, part: Range, stored: int) -> bytes:
    """The bytes of a section, compared with its hash in the envelope when there is one."""
    raw = os.pread(fd, part.nbytes, part.offset)
    if len(raw) != part.nbytes:
        raise Bounds(
            "the file ends inside the section",
            code="section",
            section=name,
            offset=part.offset,
            expected=part.nbytes,
            found=len(raw),
        )
    found = hash64(raw) if stored else 0
    if found != stored:
        raise HashMismatch(
            f"the {name} does not match the hash in the envelope; `cortiq repair` looks for an earlier version",
            code=name,
            section=name,
            offset=part.offset,
            expected=f"{stored:016x}",
            found=f"{found:016x}",
        )
    return raw


def _check_skill_bit(envelope: Envelope, header: Header) -> None:
    """Bit 6 and a skill record bound to a base come together (SPEC 9.1)."""
    if bool(envelope.features & Feature.SKILL_FILE) != header.is_skill_file:
        raise Parse(
            "the SKILL_FILE bit and the skill records contradict each other",
            code="skill_file",
            section="header",
            offset=envelope.header.offset,
            expected="bit 6 if and only if a skill has base_dir_hash",
            found=f"bits {envelope.features:#x}, base_dir_hash {'present' if header.is_skill_file else 'absent'}",
        )
