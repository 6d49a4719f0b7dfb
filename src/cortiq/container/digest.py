"""Strong digests: SHA-256 of every tensor and section, carried in the file beside hash64 (an addition to SPEC 8).

hash64 does not see words that changed places; these do. A reader that does not know them sees one more u8 tensor:

    tensor  cmf.digests.sha256, u8 [n, 32]: one digest for each of the n other tensors, in directory order
    header  "digests": {"alg": "sha256", "tensor": "cmf.digests.sha256",
                        "sections": {"masks": 64 hex digits, ..., "directory": 64 hex digits}}

Every section but the header itself is named. The directory's digest covers the names, which no tensor's digest does.
In a set of shards each file has its own; the tensor of file k > 1 is called cmf.digests.sha256.0000k, for names in a
set are unique (SPEC 10).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cortiq.container.file import File
from cortiq.container.header import Header, ShardInfo, parse_header
from cortiq.container.strict_json import dump_json
from cortiq.errors import Parse, UnsupportedFeature

ALG = "sha256"
TENSOR = "cmf.digests.sha256"
FIELD = "digests"
NBYTES = 32
SECTIONS = ("directory", "masks", "vocab", "index")
_U8 = 6
_HEX = frozenset("0123456789abcdef")
_OF_SHARD = re.compile(re.escape(TENSOR) + r"\.\d{5}")


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


def digest_tensor_name(shard: ShardInfo | None) -> str:
    """What the tensor of digests is called in a file, or in that file of a set."""
    return TENSOR if shard is None or shard.no == 1 else f"{TENSOR}.{shard.no:05}"


def is_digest_tensor(name: str) -> bool:
    """Whether a tensor of this name holds digests, of the file itself or of a shard merged into it."""
    return name == TENSOR or _OF_SHARD.fullmatch(name) is not None


def with_digests(header: Header, sections: Mapping[str, memoryview]) -> Header:
    """``header`` of a file with these sections, with their digests; a place is kept for that of the directory."""
    stated = {name: hashlib.sha256(data).hexdigest() for name, data in sections.items()}
    field = {
        "alg": ALG,
        "tensor": digest_tensor_name(header.shard),
        "sections": {**stated, "directory": "0" * (2 * NBYTES)},
    }
    return parse_header(dump_json({**header.to_dict(), FIELD: field}))


def with_directory_digest(header: Header, directory: bytes) -> Header:
    """``header``, made by ``with_digests``, with the digest of ``directory``. Its size stays the same."""
    fields = header.to_dict()
    fields[FIELD]["sections"]["directory"] = hashlib.sha256(directory).hexdigest()
    return parse_header(dump_json(fields))


def without_digests(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Header fields without those of digests: whoever changes a file makes them anew or leaves them out."""
    return {name: value for name, value in fields.items() if name != FIELD}


def covered(names: Iterable[str]) -> list[str]:
    """The tensors that have a digest: all but those that hold them."""
    return [name for name in names if not is_digest_tensor(name)]


def _of_tensors(file: File, stated: object) -> dict[str, bytes]:
    own = digest_tensor_name(file.header.shard)
    if stated != own or own not in file:
        raise _invalid(file, f"the tensor {own}", "none" if stated == own else stated)
    names = covered(file)
    entry = file.tensors[own]
    if entry.dtype != _U8 or entry.nbytes != digest_tensor_nbytes(len(names)):
        found = f"dtype {entry.dtype}, {entry.nbytes} bytes"
        raise _invalid(file, f"u8, {NBYTES} bytes for each of {len(names)} tensors", found)
    raw = bytes(file[own].raw)
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
