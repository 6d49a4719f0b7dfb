"""Ed25519 keys of signatures (SPEC 8.2): private ones from a file, public ones to compare signers with.

A private key is a file of 64 hexadecimal digits, the 32-byte seed, or an OpenSSH private key, as
``ssh-keygen -t ed25519`` makes them. A public key is 64 hexadecimal digits, a line ``ssh-ed25519 AAAA...``, or a file
of either.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cortiq.container.mapping import read_small
from cortiq.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NBYTES = 32
MAX_KEY_FILE = 1 << 16
_SSH_TYPE = b"ssh-ed25519"
_SSH_PRIVATE = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_HEX = re.compile(r"[0-9a-fA-F]{64}")

Passphrase = Callable[[], str]
"""Asks for the passphrase of a key; called only for one that has a passphrase."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The 32 ``raw`` bytes of an Ed25519 public key; ``name`` is the comment it came with."""

    raw: bytes
    name: str = ""

    @property
    def hex(self) -> str:
        return self.raw.hex()

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` prints it: ``SHA256:`` and 43 characters of base64."""
        blob = b"".join(struct.pack(">I", len(part)) + part for part in (_SSH_TYPE, self.raw))
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_private_key(path: str | os.PathLike[str], passphrase: Passphrase) -> Ed25519PrivateKey:
    """The private key in a file. Nothing is written, whatever the file is.

    Raises UsageError.key for a file that is none, UsageError.passphrase for a wrong passphrase, OSError.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _read(path)
    if raw.lstrip().startswith(_SSH_PRIVATE):
        return _openssh_private(raw, os.fspath(path), passphrase)
    text = raw.decode("ascii", "replace").strip()
    if not _HEX.fullmatch(text):
        raise UsageError(
            "not a signing key",
            code="key",
            path=os.fspath(path),
            expected="64 hexadecimal digits or an OpenSSH private key",
            found=f"{len(text)} characters",
        )
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text))


def is_exposed(path: str | os.PathLike[str]) -> bool:
    """Whether others than its owner may read a key file."""
    return bool(os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def create_private_key(path: str | os.PathLike[str]) -> None:
    """Make a new seed and write it to ``path``, readable by its owner alone.

    Raises FileExistsError for anything that is there already, a broken link included.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, os.urandom(NBYTES).hex().encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def parse_public_key(text: str) -> PublicKey:
    """The public key ``text`` is, or the one in the file it names. Raises UsageError.pubkey and OSError."""
    if found := _public_key(text.strip()):
        return found
    path = Path(text).expanduser()
    lines = _read(path).decode("utf-8", "replace").splitlines() if path.is_file() else []
    keys = [line.strip() for line in lines if line.strip()]
    found = _public_key(keys[0]) if len(keys) == 1 else None
    if found is None:
        raise UsageError(
            "not a public key",
            code="pubkey",
            expected="64 hexadecimal digits, ssh-ed25519 AAAA..., or a file of one such line",
            found=text[:100],
        )
    return found


def read_trusted_keys(path: str | os.PathLike[str]) -> tuple[PublicKey, ...]:
    """The keys in a file of one per line, each followed by a name if one likes; ``#`` starts a comment line.

    Raises UsageError.pubkey naming the line that is none, and OSError.
    """
    keys = []
    for number, line in enumerate(_read(path).decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key = _public_key(text)
        if key is None:
            raise UsageError(f"line {number} is no public key", code="pubkey", path=os.fspath(path), found=text[:100])
        keys.append(key)
    return tuple(keys)


def _public_key(text: str) -> PublicKey | None:
    first, _, rest = text.partition(" ")
    if _HEX.fullmatch(first):
        return PublicKey(bytes.fromhex(first), rest.strip())
    if first != _SSH_TYPE.decode():
        return None
    digits, _, name = rest.strip().partition(" ")
    try:
        blob = base64.b64decode(digits, validate=True)
    except binascii.Error:
        return None
    head = struct.pack(">I", len(_SSH_TYPE)) + _SSH_TYPE + struct.pack(">I", NBYTES)
    if not blob.startswith(head) or len(blob) != len(head) + NBYTES:
        return None
    return PublicKey(blob[len(head) :], name.strip())


def _openssh_private(raw: bytes, path: str, passphrase: Passphrase) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    key: Any
    code = "key"
    try:
        try:
            key = load_ssh_private_key(raw, None)
        except TypeError:  # how the library says that there is a passphrase
            code = "passphrase"
            key = load_ssh_private_key(raw, passphrase().encode())
    except (UnsupportedAlgorithm, ValueError, TypeError) as error:
        raise UsageError(f"the key cannot be opened: {error}", code=code, path=path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            "the key is of another kind", code="key", path=path, expected="Ed25519", found=type(key).__name__
        )
    return key


def _read(path: str | os.PathLike[str]) -> bytes:
    raw = read_small(path, MAX_KEY_FILE)
    if raw is None:
        raise UsageError("too large for a key", code="key", path=os.fspath(path), expected=f"at most {MAX_KEY_FILE}")
    return raw
