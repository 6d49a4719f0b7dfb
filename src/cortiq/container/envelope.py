"""The 128 bytes every CMF file begins with, and the ranges they promise (SPEC 1, 1.2).

Checks need the size of the file, never its content beyond these bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from cortiq.container.features import check_features
from cortiq.errors import Bounds, InvalidMagic, Limit, Parse, UnsupportedVersion

MAGIC = b"CMF\x01"
VERSION = 2
NBYTES = 128
PAGE = 4096
MAX_HEADER = 100 * 10**6
MAX_DIRECTORY = 2**30
SECTIONS = ("header", "directory", "data", "masks", "vocab", "index")
_REQUIRED = ("header", "directory")
_MIN_DIRECTORY = 16
_STRUCT = struct.Struct("<4sIII14Q")
_HINTS = (
    (b"\x1f\x8b", "this is a gzip archive"),
    (b"PK\x03\x04", "this is a ZIP archive"),
    (b"GGUF", "this is a GGUF file; convert it first"),
    (b"version https://git-lfs", "this is a git-LFS pointer, not the file itself"),
    (b"<!DOCTYPE", "this is an HTML page, perhaps of a failed download"),
    (b"<html", "this is an HTML page, perhaps of a failed download"),
    (b"\0\0\0\0", "the head is zero, perhaps of an unfinished write or download"),
)


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes ``offset`` to ``offset + nbytes`` of the file. Absent sections have no bytes."""

    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where the sections are. ``header_hash`` and ``directory_hash`` are 0 when the file carries none (SPEC 8.1)."""

    header: Range
    directory: Range
    data: Range
    masks: Range = Range(0, 0)
    vocab: Range = Range(0, 0)
    index: Range = Range(0, 0)
    features: int = 1
    flags: int = 0
    header_hash: int = 0
    directory_hash: int = 0

    def section(self, name: str) -> Range:
        """The range called ``name``, one of ``SECTIONS``."""
        return {
            "header": self.header,
            "directory": self.directory,
            "data": self.data,
            "masks": self.masks,
            "vocab": self.vocab,
            "index": self.index,
        }[name]

    def pack(self) -> bytes:
        """The 128 bytes."""
        ranges = [self.section(name) for name in SECTIONS]
        words = [word for part in ranges for word in (part.offset, part.nbytes)]
        head = (MAGIC, VERSION, self.flags, self.features)
        return _STRUCT.pack(*head, *words, self.header_hash, self.directory_hash)


def parse_envelope(head: bytes, file_size: int) -> Envelope:
    """The envelope in the first 128 bytes of a file of ``file_size`` bytes.

    Checked in this order: magic, version, features, ranges. Raises Bounds.envelope_short, InvalidMagic.magic,
    UnsupportedVersion.version, what ``check_features`` raises, and what ``check_ranges`` raises.
    """
    _check_magic(head)
    if len(head) < NBYTES:
        raise _short(len(head))
    _, version, flags, features, *words = _STRUCT.unpack_from(head)
    if version != VERSION:
        raise UnsupportedVersion(
            "not a version this reader knows", code="version", section="envelope", offset=4, expected=2, found=version
        )
    check_features(features, offset=12)
    header, directory, data, masks, vocab, index = (Range(*words[2 * i : 2 * i + 2]) for i in range(len(SECTIONS)))
    envelope = Envelope(header, directory, data, masks, vocab, index, features, flags, words[12], words[13])
    check_ranges(envelope, file_size)
    return envelope


def check_ranges(envelope: Envelope, file_size: int) -> None:
    """Every section lies inside the file, outside the envelope and apart from the others.

    The data section may span other sections, as it does after growth (SPEC 9); its tensors may not, which the
    directory checks. Raises Parse.header_empty, Bounds.dir_short, .absent_with_length, .section_in_envelope,
    .section, .data_align, .overlap, and Limit.header, Limit.directory.
    """
    _check_required(envelope)
    for position, name in enumerate(SECTIONS):
        _check_range(name, envelope.section(name), 16 + 16 * position, file_size)
    _check_overlap(envelope)


def _check_magic(head: bytes) -> None:
    if len(head) < len(MAGIC):
        raise _short(len(head))
    if head[:4] != MAGIC:
        hint = next((f": {text}" for start, text in _HINTS if head.startswith(start)), "")
        raise InvalidMagic(
            f"not a CMF file{hint}", code="magic", section="envelope", offset=0, expected=MAGIC, found=head[:4]
        )


def _short(found: int) -> Bounds:
    return Bounds(
        "the file is shorter than the envelope",
        code="envelope_short",
        section="envelope",
        offset=0,
        expected=f"at least {NBYTES} bytes",
        found=found,
    )


def _check_required(envelope: Envelope) -> None:
    if envelope.header.nbytes == 0:
        raise Parse(
            "the header is empty", code="header_empty", section="header", offset=0x18, expected="a header", found=0
        )
    if envelope.directory.nbytes < _MIN_DIRECTORY:
        raise Bounds(
            "the directory is too short for its counts",
            code="dir_short",
            section="directory",
            offset=0x28,
            expected=f"at least {_MIN_DIRECTORY}",
            found=envelope.directory.nbytes,
        )


def _check_range(name: str, part: Range, at: int, file_size: int) -> None:
    """``at`` is where the envelope states the offset."""
    if name == "data" and part.offset % PAGE:
        raise Bounds(
            "the data section is not page-aligned",
            code="data_align",
            section=name,
            offset=at,
            expected=f"a multiple of {PAGE}",
            found=part.offset,
        )
    if part.nbytes == 0:
        if name == "data" and part.offset > file_size:
            raise _beyond(name, part, at, file_size)
        return
    if part.offset == 0 and name in ("masks", "vocab", "index"):
        raise Bounds(
            "a section at offset 0 is absent, yet it has a length",
            code="absent_with_length",
            section=name,
            offset=at + 8,
            expected=0,
            found=part.nbytes,
        )
    if part.offset < NBYTES:
        raise Bounds(
            "the section begins inside the envelope",
            code="section_in_envelope",
            section=name,
            offset=at,
            expected=f"at least {NBYTES}",
            found=part.offset,
        )
    if part.end > file_size:
        raise _beyond(name, part, at, file_size)
    limit = {"header": MAX_HEADER, "directory": MAX_DIRECTORY}.get(name)
    if limit is not None and part.nbytes > limit:
        raise Limit(
            "the section is larger than the reader accepts",
            code=name,
            section=name,
            offset=at + 8,
            expected=f"at most {limit}",
            found=part.nbytes,
        )


def _beyond(name: str, part: Range, at: int, file_size: int) -> Bounds:
    return Bounds(
        "the section does not end inside the file",
        code="section",
        section=name,
        offset=at,
        expected=f"at most {file_size} bytes",
        found=f"{part.offset} + {part.nbytes}",
    )


def _check_overlap(envelope: Envelope) -> None:
    named = [(envelope.section(name), name) for name in SECTIONS if name != "data"]
    live = sorted(((part, name) for part, name in named if part.nbytes), key=lambda item: item[0].offset)
    for (before, first), (after, second) in pairwise(live):
        if after.offset < before.end:
            raise Bounds(
                f"the sections {first} and {second} overlap",
                code="overlap",
                section=second,
                offset=after.offset,
                expected=f"at least {before.end}",
                found=after.offset,
            )
