"""Detached signatures (SPEC 8.2): ``<file name>.sig`` beside a file says who vouches for its bytes.

    {"alg": "ed25519-sha256", "pubkey": 64 hex digits, "sha256": 64 hex digits, "sig": 128 hex digits}

What is signed is the raw 32-byte SHA-256 of the whole file, by pure Ed25519. The key in the signature proves only that
whoever signed had it: trust comes from keys the verifier brings. Growing or changing a file ends its signature.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cortiq.container.file import File
from cortiq.container.location import check_local
from cortiq.container.mapping import read_small
from cortiq.container.output import AtomicFile
from cortiq.container.signing_keys import NBYTES, PublicKey
from cortiq.container.strict_json import parse_json
from cortiq.errors import Parse, Signature, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALG = "ed25519-sha256"
SUFFIX = ".sig"
MAX_NBYTES = 1 << 16
_SIG_NBYTES = 64
_BLOCK = 1 << 20
_LOWER_HEX = frozenset("0123456789abcdef")
_HEX = _LOWER_HEX | frozenset("ABCDEF")
_P = 2**255 - 19
# y of the points whose order divides 8, and y + p where that fits: with such a key anybody can sign something.
_Y8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = frozenset(y.to_bytes(32, "little") for y in (0, 1, _P - 1, _P, _P + 1, _Y8, _P - _Y8))

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed a file. ``trusted`` is False when nobody said that the key is to be trusted.

    ``path`` is the signature's.
    """

    key: PublicKey
    trusted: bool
    path: Path


def signature_path(path: str | os.PathLike[str]) -> Path:
    """Where the signature of the file at ``path`` is: beside the given name, also when that is a symbolic link."""
    return Path(os.fspath(path) + SUFFIX)


def sign(file: File, key: Ed25519PrivateKey, *, force: bool = False, progress: Progress | None = None) -> Signer:
    """Write the signature of ``file`` beside it; ``trusted`` of the result is True.

    Equal bytes and key give an equal signature. Raises UsageError.exists for a signature that is there already unless
    ``force``, UsageError.remote for a remote file, Changed.file, OSError.
    """
    check_local(file.path, "signing")
    target = signature_path(file.path)
    if not force and os.path.lexists(target):
        raise UsageError("there is a signature already", code="exists", path=str(target))
    public = PublicKey(key.public_key().public_bytes_raw())
    digest = _file_digest(file, progress)
    fields = {"alg": ALG, "pubkey": public.hex, "sha256": digest.hex(), "sig": key.sign(digest).hex()}
    with AtomicFile(target) as output:
        output.write_at(0, memoryview(json.dumps(fields, indent=2).encode()))
        output.commit()
    return Signer(public, trusted=True, path=target)


def check_signature(
    file: File,
    *,
    trusted: Sequence[PublicKey] = (),
    required: bool = False,
    progress: Progress | None = None,
) -> Signer | None:
    """Who signed ``file``; None when there is no signature beside it.

    ``required`` demands a signature by one of the ``trusted`` keys. Raises Signature with one of the codes ``parse``,
    ``alg``, ``digest`` (the file is not the one that was signed), ``invalid``, ``absent`` and ``untrusted``;
    Changed.file, UsageError.remote for a remote file.
    """
    check_local(file.path, "checking a signature")
    path = signature_path(file.path)
    try:
        raw = _read(path)
        if raw is None:
            if required:
                raise Signature("the file is not signed", code="absent", expected="a signature", found="none")
            return None
        return _check(file, path, raw, (trusted, required, progress))
    except Signature as error:
        error.path = error.path or str(path)
        raise


def _check(file: File, path: Path, raw: bytes, wanted: tuple[Sequence[PublicKey], bool, Progress | None]) -> Signer:
    trusted, required, progress = wanted
    fields = _fields(raw)
    stated = _hex(fields["sha256"], NBYTES, "digest", _LOWER_HEX)
    public = _hex(fields["pubkey"], NBYTES, "invalid", _HEX)
    signature = _hex(fields["sig"], _SIG_NBYTES, "invalid", _HEX)
    named = next((key for key in trusted if key.raw == public), None)
    key = named or PublicKey(public)
    if required and named is None:
        raise Signature(
            "signed by a key that is not trusted",
            code="untrusted",
            expected=", ".join(known.fingerprint for known in trusted) or "a trusted key, and none is known",
            found=key.fingerprint,
        )
    found = _file_digest(file, progress)
    if found != stated:
        real = os.path.realpath(file.path)
        where = f"{file.path}, which is {real}," if os.path.islink(file.path) else f"{file.path}"
        raise Signature(
            f"{where} is not the file that was signed", code="digest", expected=stated.hex(), found=found.hex()
        )
    _check_bytes(stated, public, signature)
    return Signer(key, trusted=named is not None, path=path)


def _check_bytes(digest: bytes, public: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if bytes([*public[:-1], public[-1] & 0x7F]) in SMALL_ORDER:
        raise Signature("the public key is one anybody can sign with", code="invalid", found=public.hex())
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except (InvalidSignature, ValueError) as error:
        raise Signature("the signature does not belong to this key and digest", code="invalid") from error


def _read(path: Path) -> bytes | None:
    """The bytes of a signature, at most 64 KiB; None when there is nothing by that name."""
    if not os.path.lexists(path):
        return None
    try:
        raw = read_small(path, MAX_NBYTES)
    except (OSError, UsageError) as error:
        raise Signature(f"the signature cannot be read: {error}", code="parse") from error
    if raw is None:
        raise Signature("too large for a signature", code="parse", expected=f"at most {MAX_NBYTES} bytes")
    return raw


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(raw, section="signature", offset=0)
    except Parse as error:
        raise Signature(f"not a signature: {error.message}", code="parse", offset=error.offset) from error
    if not isinstance(fields, dict):
        raise Signature("not a signature", code="parse", expected="an object", found=type(fields).__name__)
    if fields.get("alg") != ALG:
        raise Signature("unknown kind of signature", code="alg", expected=ALG, found=fields.get("alg"))
    if missing := [name for name in ("pubkey", "sha256", "sig") if name not in fields]:
        raise Signature("not a whole signature", code="parse", expected=", ".join(missing), found="none")
    return fields


def _hex(value: Any, nbytes: int, code: str, digits: frozenset[str]) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * nbytes or not digits.issuperset(value):
        raise Signature(
            "a field of the signature is not valid",
            code=code,
            expected=f"{2 * nbytes} hexadecimal digits",
            found=str(value)[:200],
        )
    return bytes.fromhex(value)


def _file_digest(file: File, progress: Progress | None) -> bytes:
    """SHA-256 of the mapped bytes. Raises Changed.file when they are no longer those that were opened."""
    file.mapping.check_unchanged()
    state = hashlib.sha256()
    for at in range(0, file.size, _BLOCK):
        state.update(file.mapping.view(at, min(_BLOCK, file.size - at)))
        if progress is not None:
            progress(min(at + _BLOCK, file.size), file.size)
    file.mapping.check_unchanged()
    return state.digest()
