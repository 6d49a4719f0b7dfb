"""Keys of signatures: every form a private or public key may have, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cortiq.container.signing_keys import (
    create_private_key,
    is_exposed,
    parse_public_key,
    read_private_key,
    read_trusted_keys,
)
from cortiq.errors import UsageError

SEED = bytes(range(32))
PUBLIC = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
KEY = Ed25519PrivateKey.from_private_bytes(SEED)


def never() -> str:
    raise AssertionError("there is no passphrase to ask for")


def openssh(key=KEY, passphrase: bytes | None = None) -> bytes:
    secret = ser.BestAvailableEncryption(passphrase) if passphrase else ser.NoEncryption()
    return key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, secret)


def ssh_line(comment: str = "") -> str:
    line = KEY.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()
    return f"{line} {comment}".strip()


@pytest.mark.parametrize(
    "content",
    [SEED.hex().encode(), SEED.hex().upper().encode(), SEED.hex().encode() + b"\n", openssh()],
    ids=["seed", "upper", "newline", "openssh"],
)
def test_h14_private_keys(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    assert read_private_key(path, never).public_key().public_bytes_raw().hex() == PUBLIC
    assert path.read_bytes() == content


def test_passphrase(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(openssh(passphrase=b"secret"))
    assert read_private_key(path, lambda: "secret").private_bytes_raw() == SEED
    with pytest.raises(UsageError) as caught:
        read_private_key(path, lambda: "guess")
    assert caught.value.code == "passphrase"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        SEED[:31].hex().encode(),
        SEED.hex().encode() + b"00",
        b"g" * 64,
        b"\xff" * 64,
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        openssh(ec.generate_private_key(ec.SECP256R1())),
        b"0" * 70_000,
    ],
    ids=["empty", "31", "33", "letters", "binary", "broken", "ecdsa", "large"],
)
def test_h14_what_is_no_key(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_private_key(path, never)
    assert caught.value.code == "key"
    assert path.read_bytes() == content


def test_a_pipe_is_no_key(tmp_path):
    os.mkfifo(tmp_path / "key")
    with pytest.raises(UsageError) as caught:
        read_private_key(tmp_path / "key", never)
    assert caught.value.code == "not_regular"


def test_new_key_is_private_and_never_replaces(tmp_path):
    path = tmp_path / "key"
    create_private_key(path)
    made = path.read_bytes()
    assert len(made) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert not is_exposed(path)
    with pytest.raises(FileExistsError):
        create_private_key(path)
    assert path.read_bytes() == made
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        create_private_key(tmp_path / "link")
    path.chmod(0o644)
    assert is_exposed(path)


def test_public_keys(tmp_path):
    (tmp_path / "key.pub").write_text(ssh_line("me@here") + "\n")
    for text in (PUBLIC, PUBLIC.upper(), ssh_line(), ssh_line("me@here"), str(tmp_path / "key.pub")):
        assert parse_public_key(text).hex == PUBLIC
    assert parse_public_key(str(tmp_path / "key.pub")).name == "me@here"


@pytest.mark.parametrize("text", ["", PUBLIC[1:], "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa AAAA", "ssh-ed25519 !"])
def test_what_is_no_public_key(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        parse_public_key(text)
    assert caught.value.code == "pubkey"
    (tmp_path / "keys").write_text(f"# mine\n\n{PUBLIC} first\n{text or 'nothing'}\n")
    with pytest.raises(UsageError, match="line 4"):
        read_trusted_keys(tmp_path / "keys")


def test_a_file_of_two_is_no_single_key(tmp_path):
    (tmp_path / "keys").write_text(f"{PUBLIC}\n{ssh_line('two')}\n")
    with pytest.raises(UsageError):
        parse_public_key(str(tmp_path / "keys"))
    assert [key.name for key in read_trusted_keys(tmp_path / "keys")] == ["", "two"]


def test_fingerprint_is_that_of_ssh_keygen():
    blob = base64.b64decode(ssh_line().split()[1])
    wanted = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    assert parse_public_key(PUBLIC).fingerprint == f"SHA256:{wanted}"
