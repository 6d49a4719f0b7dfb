"""What envelope, header, directory and the head of the masks section say, read once and checked (SPEC 1.2).

Where the bytes come from, a descriptor or a server, is the business of whoever opens the file.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cortiq.container.arch import Arch
from cortiq.container.directory import Directory, parse_directory
from cortiq.container.envelope import NBYTES, Envelope, Range, parse_envelope
from cortiq.container.features import Feature
from cortiq.container.hashing import hash64
from cortiq.container.header import Header, parse_header
from cortiq.container.mask_meta import COUNTS_NBYTES, MaskMeta, meta_nbytes, parse_mask_meta
from cortiq.errors import Bounds, HashMismatch, Parse


class Source(Protocol):
    """Something that has bytes. ``read`` gives fewer than asked for where they end."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, nbytes: int) -> bytes: ...


class Metadata(NamedTuple):
    """Everything opening a file tells; the blob is not touched."""

    envelope: Envelope
    header: Header
    directory: Directory
    mask_meta: MaskMeta | None


def read_metadata(source: Source, head: bytes | None = None) -> Metadata:
    """The metadata of the file in ``source``, as its envelope describes it or as ``head`` does.

    Raises a FormatError, and HashMismatch for a header or directory that does not match its stored hash.
    """
    envelope = parse_envelope(source.read(0, NBYTES) if head is None else head, source.size)
    raw_header = _read_section(source, "header", envelope.header, envelope.header_hash)
    raw_directory = _read_section(source, "directory", envelope.directory, envelope.directory_hash)
    header = parse_header(raw_header, envelope.header.offset)
    _check_skill_bit(envelope, header)
    directory = parse_directory(raw_directory, envelope)
    return Metadata(envelope, header, directory, _read_mask_meta(source, envelope.masks, header.arch))


def _read_mask_meta(source: Source, part: Range, arch: Arch) -> MaskMeta | None:
    """What the masks section says of its masks, without their bits."""
    if part.nbytes == 0:
        return None
    counts = _read_section(source, "masks", Range(part.offset, min(part.nbytes, COUNTS_NBYTES)), 0)
    end = meta_nbytes(counts, part.nbytes, part.offset)
    head = _read_section(source, "masks", Range(part.offset, end), 0)
    return parse_mask_meta(head, part.nbytes, arch, part.offset)


def _read_section(source: Source, name: str, part: Range, stored: int) -> bytes:
    """The bytes of a section, compared with its hash in the envelope when there is one."""
    raw = source.read(part.offset, part.nbytes)
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
