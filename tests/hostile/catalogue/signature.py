"""H: section hashes and the detached signature (SPEC 8.1, 8.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from builders.cmf import Cmf
from cortiq.container.hash64 import hash64
from hostile.catalogue.shards import path_of, shard
from hostile.damage import fields, flip
from hostile.row import HEADER_HASH, Case, Row

SEED = bytes(range(32))
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group Ed25519 signs in


def hashes(**values: Any) -> Case:
    """Stated hashes of sections, which making hashes right would replace."""
    return Case(fields(section_hashes=values), deep=False)


def spelled(digits: Callable[[int], str]) -> Case:
    """The right hash of the tokenizer section in other digits."""

    def damage(cmf: Cmf) -> Cmf:
        return fields(section_hashes={"vocab": digits(hash64(cmf.vocab))})(cmf)

    return Case(damage, deep=False, expected=("O ok", "V warning Parse.section_hash_digits"))


def stated(text: str, value: int) -> Case:
    """A hash in digits that mean ``value``."""
    return Case(
        fields(section_hashes={"vocab": text}),
        deep=False,
        expected="O ok",
        holds=lambda file: file.header.section_hashes["vocab"] == value,
    )


def signature(path: Path) -> Path:
    return path.with_name(path.name + ".sig")


def signed(path: Path, **changes: Any) -> dict[str, Any]:
    """The signature of a file by the key of ``SEED``, with some fields replaced (``...`` removes one)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(SEED)
    digest = sha256(path.read_bytes()).digest()
    made = {
        "alg": "ed25519-sha256",
        "pubkey": key.public_key().public_bytes_raw().hex(),
        "sha256": digest.hex(),
        "sig": key.sign(digest).hex(),
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def sig(change: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> Callable[[Path], Path]:
    """A signature beside the file, changed."""

    def place(path: Path) -> Path:
        signature(path).write_text(json.dumps(change(signed(path))))
        return path

    return place


def sig_bytes(data: bytes) -> Case:
    def place(path: Path) -> Path:
        signature(path).write_bytes(data)
        return path

    return Case(place=place)


def sig_made(make: Callable[[Path], object]) -> Case:
    """Something else than a file beside the file."""

    def place(path: Path) -> Path:
        make(signature(path))
        return path

    return Case(place=place)


def fields_of(**changes: Any) -> Case:
    return Case(place=sig(lambda made: {k: v for k, v in {**made, **changes}.items() if v is not ...}))


def changed(name: str, change: Callable[[str], str]) -> Case:
    return Case(place=sig(lambda made: {**made, name: change(made[name])}))


def large_s(text: str) -> str:
    """The same signature with the group's order added to its second half."""
    made = bytes.fromhex(text)
    return (made[:32] + (int.from_bytes(made[32:], "little") + ORDER).to_bytes(32, "little")).hex()


def repeated(path: Path) -> Path:
    text = json.dumps(signed(path))
    signature(path).write_text(text[:-1] + f', "pubkey": "{"00" * 32}"}}')
    return path


def grown_after(path: Path) -> Path:
    sig()(path)
    path.write_bytes(path.read_bytes() + bytes(64))
    return path


def unsigned_beside(path: Path) -> Path:
    """Anything under the name a signature has: growing asks no more."""
    signature(path).write_bytes(b"{}")
    return path


def seed(digits: str, *, mode: int = 0o600, **more: Any) -> Case:
    """A file of a private key beside the file."""

    def place(path: Path) -> Path:
        made = path.with_name("seed")
        made.write_text(digits, newline="")
        made.chmod(mode)
        return path

    return Case(place=place, **more)


def two_releases(path: Path) -> Path:
    """Files of one set and the second of another, all signed; the second."""
    for no, name in enumerate("aba", 1):
        made = shard(no)
        made.header["shard"]["set"] = name * 32
        saved = made.with_header().save(path_of(path.parent, no))
        signature(saved).write_text(json.dumps(signed(saved)))
    return path_of(path.parent, 2)


def linked(path: Path) -> Path:
    """A signed name that is a symbolic link to a file with a bad signature of its own."""
    link = path.with_name("link.cmf")
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    signature(path).write_bytes(b"not a signature")
    signature(link).write_text(json.dumps(signed(path)))
    return link


def flipped(section: str, at: int) -> Case:
    """One bit of the section, and what it says is still well formed."""
    damage = flip(lambda cmf: cmf.get(f"{section}_off") + at % cmf.get(f"{section}_len"), 1)
    return Case(damage, raw=("O ok", f"V HashMismatch.{section}"))


ROWS = (
    Row(
        "H1",
        "section hashes in other digits, or none",
        [
            *(hashes(vocab=value) for value in ("", "0x12", "0" * 17, "xyz", 5, None, [], "12 ")),
            *(fields(section_hashes=value) for value in ([], "x", 3)),
            spelled(lambda value: f"{value:016X}"),
            stated("A1", 0xA1),
            stated("a", 0xA),
            stated("a1", 0xA1),
            stated("00000000000000A1", 0xA1),
        ],
        expected="O Parse.section_hash",
        raw=HEADER_HASH,
    ),
    Row(
        "H2",
        "a hash of an absent section, a section without one, an unknown name",
        [
            Case(
                lambda cmf: fields(section_hashes={"masks": "0123456789abcdef"})(cmf.with_tensors(masks=b"")),
                expected=("O ok", "V warning Parse.section_hash_stale"),
            ),
            Case(
                fields(section_hashes={"masks": "0"}),
                expected=("O ok", *(f"V unhashed {name}" for name in ("masks", "vocab", "index"))),
            ),
            Case(fields(section_hashes={"masks": "0"}), expected="V require HashMismatch.absent"),
            Case(fields(section_hashes={"other": 7}), expected=("O ok", "V ok")),
        ],
        raw=HEADER_HASH,
    ),
    Row(
        "H3",
        "a flipped bit in masks, tokenizer or index",
        [flipped("masks", -10), flipped("vocab", -5), flipped("index", 12)],
    ),
    Row(
        "H4",
        "a signature that is no signature",
        [
            *(sig_bytes(data) for data in (b"", b"\xff\xfe\0", b"[]", b"null", b"{", b'"' + b"x" * 10**7 + b'"')),
            sig_made(lambda path: os.mkfifo(path)),
            sig_made(lambda path: path.mkdir()),
            sig_made(lambda path: path.symlink_to("/dev/zero")),
        ],
        raw="S Signature.parse",
        needs="signature",
    ),
    Row(
        "H5",
        "another algorithm",
        [fields_of(alg=value) for value in ("ed25519", "none", ..., "ED25519-SHA256", 3)],
        raw="S Signature.alg",
        needs="signature",
    ),
    Row(
        "H6",
        "the digest of another file",
        [
            changed("sha256", lambda text: "0" * 64),
            changed("sha256", lambda text: text[:-2]),
            changed("sha256", str.upper),
        ],
        raw="S Signature.digest",
        needs="signature",
    ),
    Row(
        "H7",
        "a signature that does not verify",
        [
            changed("sig", lambda text: text[:-1] + ("0" if text[-1] != "0" else "1")),
            changed("sig", lambda text: text[:-2]),
            changed("sig", lambda text: text + "00"),
            changed("sig", large_s),
            changed("pubkey", lambda text: "00" * 32),
            changed("pubkey", lambda text: "01" + "00" * 31),
        ],
        raw="S Signature.invalid",
        needs="signature",
    ),
    Row(
        "H8",
        "a good signature by a key nobody pinned",
        [
            Case(place=sig(), raw="S ok"),
            Case(place=sig(), raw=f"S Signature.untrusted --pubkey {'11' * 32}"),
            Case(place=sig(), raw="S Signature.untrusted --require-trusted"),
        ],
        needs="signature",
    ),
    Row(
        "H9",
        "the signature of an earlier version",
        [Case(place=grown_after)],
        raw="S Signature.digest",
        needs="signature",
    ),
    Row("H10", "a key twice in the signature", [Case(place=repeated)], raw="S Signature.parse", needs="signature"),
    Row(
        "H11",
        "growing a signed file",
        [Case(place=unsigned_beside, raw="A UsageError.signed")],
        needs="growth",
    ),
    Row(
        "H12",
        "shards of two releases, each signed well",
        [Case(place=two_releases, raw=("S ok", "SH Shard.set_mismatch"))],
        needs="shards",
    ),
    Row(
        "H13",
        "a link and its target, both with a signature: the one beside the given name counts",
        [Case(place=linked)],
        raw="S ok",
        needs="signature",
    ),
    Row(
        "H14",
        "seed files of another form",
        [
            *(seed(data, raw="SI UsageError.key") for data in (SEED[:31].hex(), SEED.hex() + "00", "", "g" * 64)),
            *(seed(data) for data in (SEED.hex(), SEED.hex().upper(), SEED.hex() + "\n", "\r\n" + SEED.hex())),
            seed(SEED.hex(), mode=0o644, says="can be read by others", raw="SI warning"),
        ],
        raw="SI ok",
        needs="signing_keys",
    ),
)
