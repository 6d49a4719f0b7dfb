"""Makes every hash of a damaged file right again, so that the checks behind the hashes must answer."""

from __future__ import annotations

import hashlib
import re
import struct

from builders.cmf import Cmf
from cortiq.container.hashing import hash64

_SECTION_HASH = re.compile(rb'"(masks|vocab|index)": ?"([0-9a-f]{16})"')
_SECTION_DIGEST = re.compile(rb'"(masks|vocab|index|directory)": ?"([0-9a-f]{64})"')
_DIGESTS = b"cmf.digests.sha256"
_COUNTS = 16
_RECORD = struct.Struct("<IH2x24xQQ8x")  # offset and length of the name, offset and size of the payload
_HASH_AT = 48


def rehash(cmf: Cmf, *, deep: bool = True) -> Cmf:
    """Every hash right again: digests, tensors and sections (unless not ``deep``), header, directory.

    What lies outside the file has no hash, and keeps the one it had.
    """
    if deep:
        _rehash_tensors(cmf)
        start, length = cmf.get("header_off"), cmf.get("header_len")
        if start + length <= len(cmf.data):
            raw = _SECTION_HASH.sub(lambda found: _weak(cmf, found), cmf.section("header"))
            cmf.put(start, _SECTION_DIGEST.sub(lambda found: _strong(cmf, found), raw))
    for section, field in (("header", "header_hash"), ("dir", "dir_hash")):
        cmf.set(field, hash64(cmf.section(section)))
    return cmf


def _weak(cmf: Cmf, found: re.Match[bytes]) -> bytes:
    digits = b"%016x" % hash64(cmf.section(found[1].decode()))
    return found[0].replace(found[2], digits)


def _strong(cmf: Cmf, found: re.Match[bytes]) -> bytes:
    name = "dir" if found[1] == b"directory" else found[1].decode()
    return found[0].replace(found[2], hashlib.sha256(cmf.section(name)).hexdigest().encode())


def _rehash_tensors(cmf: Cmf) -> None:
    start, base, size = cmf.get("dir_off"), cmf.get("data_off"), len(cmf.data)
    if start + _COUNTS > size:
        return
    count, pool = struct.unpack_from("<QQ", cmf.data, start)
    room = max(0, min(cmf.get("dir_len"), size - start) - _COUNTS) // _RECORD.size
    table = bytes(cmf.data[start + _COUNTS : start + _COUNTS + _RECORD.size * min(count, room)])
    named: dict[int, bool] = {}
    spans: dict[int, tuple[int, int]] = {}
    for i, (name_off, name_len, off, nbytes) in enumerate(_RECORD.iter_unpack(table)):
        if base + off + nbytes <= size:
            at = start + pool + name_off
            spans[i], named[i] = (base + off, base + off + nbytes), cmf.data[at : at + name_len] == _DIGESTS
    holders = [span for i, span in spans.items() if named[i]]
    if holders:
        (first, last), others = holders[0], [span for i, span in spans.items() if not named[i]]
        cmf.put(first, b"".join(_sha256(cmf.data[a:b]) for a, b in others)[: last - first])
    known = {(a, b): hash64(bytes(cmf.data[a:b])) for a, b in spans.values()}
    for i, span in spans.items():
        struct.pack_into("<Q", cmf.data, start + _COUNTS + _RECORD.size * i + _HASH_AT, known[span])


def _sha256(data: bytearray) -> bytes:
    return hashlib.sha256(data).digest()
