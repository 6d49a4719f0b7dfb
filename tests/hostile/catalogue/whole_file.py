"""L: damage to the file as a whole."""

from __future__ import annotations

import base64
import gzip
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256

from builders.cmf import U8, Cmf, T, two_layers
from hostile.damage import content
from hostile.row import Case, Row

PAGE = 4096
DIGESTS = "cmf.digests.sha256"
SEED = 5
SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")


def lengths(cmf: Cmf) -> list[int]:
    """All up to the end of the directory and near every boundary, and a choice of the others."""
    size = len(cmf.data)
    edges = [cmf.get(f"{name}_off") + cmf.get(f"{name}_len") for name in SECTIONS]
    edges += [cmf.get(f"{name}_off") for name in SECTIONS]
    edges += [cmf.get("data_off") + cmf.get_record(i, "off") for i in range(len(cmf.tensors))]
    near = {edge + d for edge in edges for d in (-1, 0, 1)}
    metadata = cmf.get("dir_off") + cmf.get("dir_len")
    return sorted(n for n in {*range(metadata), *range(0, size, 61), *near} if n < size)


def truncated(cmf: Cmf, low: int, high: int) -> Iterator[bytes]:
    whole = bytes(cmf.data)
    return (whole[:n] for n in lengths(cmf) if low <= n < high)


def holes(cmf: Cmf) -> Iterator[bytes]:
    """Each page behind the first zero."""
    whole = bytes(cmf.data)
    for at in range(PAGE, len(whole), PAGE):
        size = min(PAGE, len(whole) - at)
        yield whole[:at] + bytes(size) + whole[at + size :]


def exchanged(cmf: Cmf, at: int) -> bytes:
    """The page at ``at`` and the next one in each other's place."""
    whole = bytes(cmf.data)
    return whole[:at] + whole[at + PAGE : at + 2 * PAGE] + whole[at : at + PAGE] + whole[at + 2 * PAGE :]


def big_tensor(cmf: Cmf) -> range:
    """Pages that lie in the largest tensor as a whole."""
    start = cmf.get("data_off") + cmf.get_record(4, "off")
    return range(-(-start // PAGE) * PAGE, start + cmf.get_record(4, "nbytes") - PAGE + 1, PAGE)


def between_tensors(cmf: Cmf) -> Iterator[bytes]:
    """Exchanges that move bytes from one tensor to another."""
    inside = big_tensor(cmf)
    for at in range(PAGE, len(cmf.data) - 2 * PAGE + 1, PAGE):
        if not (at in inside and at + PAGE in inside):
            yield exchanged(cmf, at)


def within_a_tensor(cmf: Cmf) -> Iterator[bytes]:
    """Exchanges within one tensor, whose words stay the same: hash64 cannot see them."""
    return (exchanged(cmf, at) for at in big_tensor(cmf)[:-1])


def with_digests() -> Cmf:
    """The base file with a strong digest of every tensor."""
    base = two_layers()
    digests = b"".join(sha256(tensor.payload).digest() for tensor in base.tensors)
    tensors = [*base.tensors, T(DIGESTS, U8, (len(base.tensors), 32), digests)]
    changed = {**base.header, "digests": {"alg": "sha256", "tensor": DIGESTS, "sections": {}}}
    return replace(base, header=changed, tensors=tensors, data=bytearray()).build()


def lean() -> Cmf:
    """The base file without the sections that mean something on their own: zeros there are no masks, no index."""
    return replace(two_layers(), masks=b"", index=b"", features=1, data=bytearray()).build()


def unfinished(cmf: Cmf, at: int) -> bytes:
    """A download whose rest is zero."""
    return bytes(cmf.data[:at]) + bytes(len(cmf.data) - at)


def noise(_: Cmf, head: bytes) -> Iterator[bytes]:
    """Random bytes behind a head."""
    rng = random.Random(SEED)
    return (head + rng.randbytes(rng.randrange(128, 4096)) for _ in range(500))


def whole_noise(_: Cmf) -> Iterator[bytes]:
    rng = random.Random(SEED)
    return (rng.randbytes(rng.choice((4, 100, 1024, 65536))) for _ in range(500))


MAGIC, VERSION = b"CMF\x01", b"\x02\0\0\0"

ROWS = (
    Row(
        "L1",
        "truncated",
        [
            Case(lambda cmf: truncated(cmf, 0, 128), raw="O Bounds.envelope_short"),
            lambda cmf: truncated(cmf, 128, len(cmf.data)),
        ],
        raw="O Bounds.section",
    ),
    Row(
        "L2",
        "a page of zeros",
        [
            Case(lambda cmf: bytes(PAGE) + bytes(cmf.data[PAGE:]), raw="O InvalidMagic.magic", says="unfinished"),
            holes,
        ],
        raw=("O ok", "V HashMismatch"),
        base=lean,
    ),
    Row(
        "L3",
        "two neighbouring pages exchanged",
        [
            Case(lambda cmf: exchanged(cmf, 0), raw="O InvalidMagic.magic"),
            between_tensors,
            Case(within_a_tensor, raw=("O ok", "V ok")),
            Case(
                lambda _: within_a_tensor(with_digests()), raw=("O ok", "V HashMismatch.digest"), needs="verify_checks"
            ),
        ],
        raw=("O ok", "V HashMismatch"),
    ),
    Row(
        "L4",
        "something else, or translated on the way",
        [
            *(
                Case(content(head), says=hint)
                for head, hint in (
                    (b"GGUF\x03\0\0\0", "GGUF"),
                    (b"PK\x03\x04", "ZIP"),
                    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-LFS"),
                    (b"<!DOCTYPE html><html>", "HTML"),
                    (b"<html><body>not found", "HTML"),
                    (bytes(300), "unfinished"),
                )
            ),
            Case(lambda cmf: gzip.compress(bytes(cmf.data), mtime=0), says="gzip"),
            lambda cmf: base64.b64encode(bytes(cmf.data)),
            Case(lambda cmf: bytes(cmf.data).replace(b"\n", b"\r\n"), raw="O HashMismatch.directory"),
            Case(partial(unfinished, at=64), raw="O Parse.utf8"),
            Case(partial(unfinished, at=128), raw="O HashMismatch.header"),
            Case(lambda cmf: unfinished(cmf, cmf.get("dir_off") + 100), raw="O HashMismatch.directory"),
            Case(lambda _: unfinished(lean(), 10_000), raw=("O ok", "V HashMismatch")),
        ],
        raw="O InvalidMagic.magic",
    ),
    Row(
        "L5",
        "random bytes, also behind a right magic, version and features",
        [
            whole_noise,
            Case(partial(noise, head=MAGIC), raw="O UnsupportedVersion.version"),
            Case(partial(noise, head=MAGIC + VERSION), raw="O UnsupportedFeature.feature_bit"),
            Case(partial(noise, head=MAGIC + VERSION + bytes(4) + b"\x01\0\0\0"), raw="O Bounds"),
        ],
        raw="O InvalidMagic.magic",
    ),
)
