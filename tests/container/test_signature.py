"""Signatures: the reference's own, and every way one can be bad (rows H4 to H14 of the catalogue)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cortiq.container import open_single, signature
from cortiq.container.signature import SMALL_ORDER, check_signature, sign, signature_path
from cortiq.container.signing_keys import PublicKey, read_private_key
from cortiq.errors import Changed, Signature, UsageError

DATA = Path(__file__).parents[1] / "data" / "container"
GOLDEN = json.loads((DATA / "signed.cmf.sig").read_text())
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OWN = PublicKey(bytes.fromhex(GOLDEN["pubkey"]), "maker")
ATTACKER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
L = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    for name in ("signed.cmf", "signed.cmf.sig"):
        shutil.copyfile(DATA / name, tmp_path / name)
    return tmp_path / "signed.cmf"


def check(path: Path, **options: object):
    with open_single(path) as file:
        return check_signature(file, **options)


def refused(path: Path, **options: object) -> str:
    with pytest.raises(Signature) as caught:
        check(path, **options)
    assert caught.value.path == str(signature_path(path))
    assert caught.value.exit_code == 4
    return caught.value.code


def replace(path: Path, content: bytes | None = None, **fields: object) -> None:
    changed = {name: value for name, value in {**GOLDEN, **fields}.items() if value is not ...}
    signature_path(path).write_bytes(json.dumps(changed).encode() if content is None else content)


def test_the_reference_signed_it(signed):
    signer = check(signed)
    assert signer.key.hex == GOLDEN["pubkey"]
    assert not signer.trusted
    signer = check(signed, trusted=[OWN], required=True)
    assert signer.trusted
    assert signer.key.name == "maker"


def test_signing_again_gives_the_bytes_of_the_reference(signed):
    signature_path(signed).unlink()
    with open_single(signed) as file:
        key = read_private_key(DATA / "throwaway.key", str)
        signer = sign(file, key)
    assert signer.path == signature_path(signed)
    assert signer.path.read_bytes() == (DATA / "signed.cmf.sig").read_bytes()


def test_an_existing_signature_is_kept_unless_forced(signed):
    before = signature_path(signed).read_bytes()
    with open_single(signed) as file:
        with pytest.raises(UsageError) as caught:
            sign(file, ATTACKER)
        assert caught.value.code == "exists"
        assert signature_path(signed).read_bytes() == before
        sign(file, ATTACKER, force=True)
    assert check(signed).key.raw == ATTACKER.public_key().public_bytes_raw()


def test_none_is_no_error_unless_one_is_required(signed):
    signature_path(signed).unlink()
    assert check(signed, trusted=[OWN]) is None
    assert refused(signed, trusted=[OWN], required=True) == "absent"


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff" * 50, b"[]", b'"x"', b"{", b"{}" * 2, b" " * (10 << 20), "{}".encode("utf-16")],
    ids=["empty", "binary", "list", "text", "half", "two", "10MB", "utf16"],
)
def test_h4_what_is_no_signature(signed, content):
    replace(signed, content)
    assert refused(signed) == "parse"


@pytest.mark.parametrize("what", ["fifo", "folder", "zero", "dangling"])
def test_h4_what_is_no_file(signed, what):
    path = signature_path(signed)
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if what == "zero" else signed.parent / "nowhere")
    assert refused(signed) == "parse"


@pytest.mark.parametrize("alg", ["ed25519", "none", ..., None, 1, "ED25519-SHA256", ["ed25519-sha256"]])
def test_h5_alg(signed, alg):
    replace(signed, alg=alg)
    assert refused(signed) == "alg"


@pytest.mark.parametrize(
    "digest",
    ["0" * 64, GOLDEN["sha256"].upper(), GOLDEN["sha256"][1:], GOLDEN["sha256"] + "00", "", None, 7],
    ids=["other", "upper", "short", "long", "empty", "null", "number"],
)
def test_h6_digest(signed, digest):
    replace(signed, sha256=digest)
    assert refused(signed) == "digest"


def bent(digits: str, byte: int) -> str:
    raw = bytearray.fromhex(digits)
    raw[byte] ^= 1
    return raw.hex()


def beyond_l() -> str:
    raw = bytes.fromhex(GOLDEN["sig"])
    return (raw[:32] + (int.from_bytes(raw[32:], "little") + L).to_bytes(32, "little")).hex()


@pytest.mark.parametrize(
    "fields",
    [
        {"sig": KEY.sign(bytes(32)).hex()},
        {"sig": bent(GOLDEN["sig"], 0)},
        {"sig": bent(GOLDEN["sig"], 63)},
        {"sig": GOLDEN["sig"][2:]},
        {"sig": GOLDEN["sig"] + "00"},
        {"sig": None},
        {"sig": beyond_l()},
        {"pubkey": bent(GOLDEN["pubkey"], 5)},
        {"pubkey": "00" * 32},
        {"pubkey": GOLDEN["pubkey"][1:]},
        {"pubkey": "ff" * 32},
    ],
    ids=["another", "first", "last", "63", "65", "null", "beyond-L", "bent-key", "zero-key", "odd-key", "no-point"],
)
def test_h7_invalid(signed, fields):
    replace(signed, **fields)
    assert refused(signed) == "invalid"


@pytest.mark.parametrize("sign_bit", [0, 0x80])
@pytest.mark.parametrize("point", sorted(SMALL_ORDER))
def test_h7_points_of_small_order(signed, point, sign_bit):
    """With R = A's multiple of the identity's order and S = 0 such a key may vouch for anything."""
    key = bytes([*point[:-1], point[-1] | sign_bit])
    for nonce in sorted(SMALL_ORDER):
        replace(signed, pubkey=key.hex(), sig=(nonce + bytes(32)).hex())
        assert refused(signed) == "invalid"


def test_points_of_small_order_are_all():
    """Doubling each three times ends at the neutral element; there are five values of y."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p
    ys = {int.from_bytes(point, "little") % p for point in SMALL_ORDER}
    assert len(ys) == 5
    for y in ys:
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        for _ in range(3):
            # y of the double of (x, y), from x squared alone
            y, square = doubled(y, square, p)
        assert (y, square) == (1, 0)


def doubled(y: int, xx: int, p: int) -> tuple[int, int]:
    """(x, y) + (x, y) on -x^2 + y^2 = 1 + d x^2 y^2, as y and the square of x."""
    yy = y * y % p
    below = (yy - xx) % p
    return (yy + xx) * pow(2 - below, -1, p) % p, 4 * xx * yy * pow(below * below, -1, p) % p


def test_h8_another_key_is_told_from_the_pinned_one(signed):
    digest = bytes.fromhex(GOLDEN["sha256"])
    public = ATTACKER.public_key().public_bytes_raw()
    replace(signed, pubkey=public.hex(), sig=ATTACKER.sign(digest).hex())
    signer = check(signed, trusted=[OWN])
    assert signer.key.raw == public
    assert not signer.trusted
    assert refused(signed, trusted=[OWN], required=True) == "untrusted"
    assert refused(signed, required=True) == "untrusted"


@pytest.mark.parametrize("row", ["h9", "h11"])
def test_h9_h11_another_file_or_a_grown_one(signed, row):
    content = (DATA / "llama-q8.cmf").read_bytes() if row == "h9" else signed.read_bytes() + bytes(64)
    signed.write_bytes(content)
    assert refused(signed) == "digest"


def test_h10_duplicate_keys(signed):
    text = json.dumps(GOLDEN)
    replace(signed, f'{text[:-1]}, "pubkey": "{GOLDEN["pubkey"]}"}}'.encode())
    assert refused(signed) == "parse"


@pytest.mark.parametrize("name", ["pubkey", "sha256", "sig"])
def test_missing_fields(signed, name):
    replace(signed, **{name: ...})
    assert refused(signed) == "parse"


def test_what_does_not_matter(signed):
    """Further keys, other spacing, and upper-case digits of key and signature, as the reference takes them."""
    replace(signed, comment="hello", sig=GOLDEN["sig"].upper(), pubkey=GOLDEN["pubkey"].upper())
    assert check(signed, trusted=[OWN], required=True).trusted


def test_h13_a_link_has_the_signature_beside_it(signed):
    link = signed.parent / "link.cmf"
    link.symlink_to(signed)
    assert check(link) is None
    shutil.copyfile(signature_path(signed), signature_path(link))
    assert check(link).path == signature_path(link)
    replace(link, sha256="0" * 64)
    with pytest.raises(Signature) as caught:
        check(link)
    assert str(link) in str(caught.value)
    assert str(signed) in str(caught.value)


def test_the_bytes_that_are_mapped_are_the_bytes_that_count(signed):
    """A file put under the same name after opening is not what was hashed."""
    with open_single(signed) as file:
        other = signed.parent / "other"
        shutil.copyfile(DATA / "llama-q8.cmf", other)
        os.replace(other, signed)
        assert check_signature(file).key.hex == GOLDEN["pubkey"]
    with open_single(signed) as file:
        os.truncate(signed, file.size + 1)
        with pytest.raises(Changed):
            sign(file, KEY, force=True)


def test_progress(signed, monkeypatch):
    monkeypatch.setattr(signature, "_BLOCK", 10_000)
    calls: list[tuple[int, int]] = []
    check(signed, progress=lambda done, total: calls.append((done, total)))
    size = signed.stat().st_size
    assert len(calls) == -(-size // 10_000)
    assert calls[-1] == (size, size)
