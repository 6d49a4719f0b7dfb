"""``cortiq sign``, and what ``cortiq verify`` says of signatures, by exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cortiq.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "container"
PUBKEY = json.loads((DATA / "signed.cmf.sig").read_text())["pubkey"]
OTHER = "00" * 31 + "02"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORTIQ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copyfile(DATA / "signed.cmf", tmp_path / "model.cmf")
    return tmp_path / "model.cmf"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    shutil.copyfile(DATA / "throwaway.key", path)
    path.chmod(0o600)
    return path


def test_the_signature_of_the_reference(model: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", str(model), "--key", str(key)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [f"signed: {model}.sig", f"pubkey: {PUBKEY}"]
    assert not err
    assert Path(f"{model}.sig").read_bytes() == (DATA / "signed.cmf.sig").read_bytes()
    assert main(["sign", str(model), "--key", str(key)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["sign", str(model), "--key", str(key), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pubkey"] == PUBKEY


def test_h14_a_key_others_can_read_is_warned_of(model: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key.chmod(0o644)
    assert main(["sign", str(model), "--key", str(key)]) == 0
    assert "can be read by others" in capsys.readouterr().err


def test_a_key_is_made_on_demand_only(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.key"
    assert main(["sign", str(model), "--key", str(path)]) == 2
    assert "--new-key" in capsys.readouterr().err
    assert not path.exists()
    assert main(["sign", str(model), "--key", str(path), "--new-key"]) == 0
    made = path.read_bytes()
    assert main(["sign", str(model), "--key", str(path), "--new-key", "--force"]) == 2
    assert path.read_bytes() == made
    assert main(["verify", str(model)]) == 0


def test_a_key_that_cannot_be_read_is_left_alone(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.key"
    path.write_text("not a key")
    assert main(["sign", str(model), "--key", str(path)]) == 2
    assert path.read_text() == "not a key"
    assert not Path(f"{model}.sig").exists()


def test_a_damaged_file_is_not_signed(model: Path, key: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    assert main(["sign", str(model), "--key", str(key)]) == 4
    assert not Path(f"{model}.sig").exists()


def test_a_passphrase_is_read_from_standard_input(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    secret = ser.BestAvailableEncryption(b"secret")
    path = tmp_path / "id_ed25519"
    path.write_bytes(private.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, secret))
    path.chmod(0o600)
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["sign", str(model), "--key", str(path)]) == 0
    assert PUBKEY in capsys.readouterr().out


class TestVerify:
    @pytest.fixture(autouse=True)
    def signature(self, model: Path) -> Path:
        target = Path(f"{model}.sig")
        shutil.copyfile(DATA / "signed.cmf.sig", target)
        return target

    def test_an_unpinned_key_is_called_one(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", str(model)]) == 0
        out = capsys.readouterr().out
        assert "signed by an unpinned key SHA256:" in out
        assert "trusted" not in out

    def test_h8_the_pinned_key(self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", str(model), "--pubkey", PUBKEY]) == 0
        assert "signed by a trusted key" in capsys.readouterr().out
        (tmp_path / "maker.pub").write_text(f"{PUBKEY} The Maker\n")
        assert main(["verify", str(model), "--pubkey", str(tmp_path / "maker.pub")]) == 0
        assert "The Maker" in capsys.readouterr().out
        assert main(["verify", str(model), "--pubkey", OTHER]) == 4
        assert "Signature.untrusted" in capsys.readouterr().out
        assert main(["verify", str(model), "--pubkey", OTHER, "--pubkey", PUBKEY]) == 0

    def test_h8_trusted_keys(self, model: Path, home: Path, tmp_path: Path) -> None:
        assert main(["verify", str(model), "--require-trusted"]) == 4
        home.mkdir()
        (home / "trusted_keys").write_text(f"# friends\n{OTHER}\n{PUBKEY} maker\n")
        assert main(["verify", str(model), "--require-trusted"]) == 0
        (tmp_path / "keys").write_text(f"{OTHER}\n")
        assert main(["verify", str(model), "--require-trusted", "--trusted-keys", str(tmp_path / "keys")]) == 4

    def test_bad_and_absent(self, model: Path, signature: Path, capsys: pytest.CaptureFixture[str]) -> None:
        signature.write_text(signature.read_text().replace("ed25519-sha256", "none"))
        assert main(["verify", str(model)]) == 4
        out = capsys.readouterr().out
        assert "Signature.alg" in out
        assert out.splitlines()[-2:] == ["the signature is bad", "1 problems"]
        signature.unlink()
        assert main(["verify", str(model)]) == 0
        assert "not signed" in capsys.readouterr().out
        assert main(["verify", str(model), "--pubkey", PUBKEY]) == 4
        assert "Signature.absent" in capsys.readouterr().out

    def test_quick_does_not_check_and_says_so(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", str(model), "--quick"]) == 0
        assert "there is a signature, not checked" in capsys.readouterr().out
        assert main(["verify", str(model), "--quick", "--pubkey", PUBKEY]) == 2

    def test_document(self, model: Path, signature: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", str(model), "--json", "--pubkey", PUBKEY]) == 0
        found = json.loads(capsys.readouterr().out)["signature"]
        assert found["valid"] is found["checked"] is found["trusted"] is True
        assert found["pubkey"] == PUBKEY
        signature.write_text("[]")
        assert main(["verify", str(model), "--json"]) == 4
        document = json.loads(capsys.readouterr().out)
        assert document["signature"] == {"checked": True, "valid": False}
        assert [p["kind"] for p in document["problems"]] == ["Signature.parse"]
        assert document["ok"] is False
        signature.unlink()
        assert main(["verify", str(model), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["signature"] is None

    def test_h13_a_link_names_both_paths(
        self, model: Path, signature: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        link = model.parent / "link.cmf"
        link.symlink_to(model)
        shutil.copyfile(signature, f"{link}.sig")
        assert main(["verify", str(link)]) == 0
        out = capsys.readouterr().out
        assert f"{link}.sig, for {link} which is {model}" in out
