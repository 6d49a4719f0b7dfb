"""Strong digests: SHA-256 of every tensor and section, carried in the file beside hash64 (an addition to SPEC 8).

hash64 does not see words that changed places; these do. A reader that does not know them sees one more u8 tensor:

    tensor  cmf.digests.sha256, u8 [n, 32]: one digest for each of the n other tensors, in directory order
    header  "digests": {"alg": "sha256", "tensor": "cmf.digests.sha256",
                        "sections": {"masks": 64 hex digits, ..., "directory": 64 hex digits}}

Every section but the header itself is named. The directory's digest covers the names, which no tensor's digest does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cortiq.container.file import File
from cortiq.container.header import Header, parse_header
from cortiq.container.strict_json import dump_json
from cortiq.errors import Parse, UnsupportedFeature

ALG = "sha256"
TENSOR = "cmf.digests.sha256"
FIELD = "digests"
NBYTES = 32
SECTIONS = ("directory", "masks", "vocab", "index")
_U8 = 6
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Digests:
    """What a file states: 32 bytes by name. ``tensors`` has every tensor but the one that holds the digests."""

    tensors: Mapping[str, bytes]
    sections: Mapping[str, bytes]


def read_digests(file: File) -> Digests | None:
    """The digests ``file`` carries, None when it carries none. Reads the tensor that holds them.

    Raises Parse.digests for a field or tensor that is not as described above, UnsupportedFeature.digests for
    digests of another kind.
    """
    field = file.header.get(FIELD)
    if field is None:
        return None
    if not isinstance(field, Mapping):
        raise _invalid(file, "an object", type(field).__name__)
    if field.get("alg") != ALG:
        raise UnsupportedFeature(
            "digests of an unknown kind", code="digests", section="header", expected=ALG, found=field.get("alg")
        )
    sections = field.get("sections", {})
    if not isinstance(sections, Mapping):
        raise _invalid(file, "an object of sections", type(sections).__name__)
    return Digests(_of_tensors(file, field.get("tensor")), {n: _of_section(file, n, v) for n, v in sections.items()})


def digest_tensor_nbytes(count: int) -> int:
    """Bytes of the tensor that holds the digests of ``count`` others."""
    return count * NBYTES


def digests_field(sections: Mapping[str, memoryview]) -> dict[str, Any]:
    """The header's field for a file with these sections; the directory's digest is filled in when it is known."""
    stated = {name: hashlib.sha256(data).hexdigest() for name, data in sections.items()}
    return {"alg": ALG, "tensor": TENSOR, "sections": {**stated, "directory": "0" * (2 * NBYTES)}}


def with_directory_digest(header: Header, directory: bytes) -> Header:
    """``header``, made with ``digests_field``, with the digest of ``directory``. Its size stays the same."""
    fields = header.to_dict()
    fields[FIELD]["sections"]["directory"] = hashlib.sha256(directory).hexdigest()
    return parse_header(dump_json(fields))


def without_digests(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Header fields without those of digests: whoever changes a file makes them anew or leaves them out."""
    return {name: value for name, value in fields.items() if name != FIELD}


def covered(names: Iterable[str]) -> list[str]:
    """The tensors that have a digest: all but the one that holds them."""
    return [name for name in names if name != TENSOR]


def _of_tensors(file: File, stated: object) -> dict[str, bytes]:
    if stated != TENSOR or TENSOR not in file:
        raise _invalid(file, f"the tensor {TENSOR}", "none" if stated == TENSOR else stated)
    names = covered(file)
    entry = file.tensors[TENSOR]
    if entry.dtype != _U8 or entry.nbytes != digest_tensor_nbytes(len(names)):
        found = f"dtype {entry.dtype}, {entry.nbytes} bytes"
        raise _invalid(file, f"u8, {NBYTES} bytes for each of {len(names)} tensors", found)
    raw = bytes(file[TENSOR].raw)
    return {name: raw[NBYTES * i : NBYTES * (i + 1)] for i, name in enumerate(names)}


def _of_section(file: File, name: str, digits: object) -> bytes:
    if name not in SECTIONS:
        raise _invalid(file, f"sections of {', '.join(SECTIONS)}", name)
    if not isinstance(digits, str) or len(digits) != 2 * NBYTES or not _HEX.issuperset(digits):
        raise _invalid(file, f"{2 * NBYTES} lowercase hexadecimal digits for {name}", digits)
    return bytes.fromhex(digits)


def _invalid(file: File, expected: str, found: object) -> Parse:
    return Parse(
        "the digests of the file cannot be read",
        code="digests",
        section="header",
        offset=file.envelope.header.offset,
        expected=expected,
        found=found,
    )
