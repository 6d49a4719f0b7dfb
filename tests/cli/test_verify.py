"""``cortiq verify``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from builders.cmf import F16, U8, Cmf, T, header, two_layers
from cortiq.cli.main import main
from cortiq.container import TensorSpec, write_file

SIGNED = Path(__file__).parents[1] / "data" / "container" / "signed.cmf"


def test_a_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["verify", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "ok"
    assert not err


def damaged(folder: Path) -> Path:
    built = two_layers()
    at = built.get("data_off") + built.get_record(0, "off")
    return built.put(at, bytes([built.data[at] ^ 1])).save(folder / "model.cmf")


def test_damage_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(damaged(tmp_path))]) == 4
    out = capsys.readouterr().out
    assert "HashMismatch" in out
    assert str(two_layers().tensors[0].name) in out
    assert out.splitlines()[-1] == "1 problems"


def test_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(damaged(tmp_path)), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["ok"] is False
    (problem,) = document["problems"]
    assert problem["kind"].startswith("HashMismatch")
    assert problem["tensor"] == two_layers().tensors[0].name
    assert document["bytes"] > 0


def test_absent_hashes_are_told_and_refused_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().set("dir_hash", 0).save(tmp_path / "model.cmf")
    assert main(["verify", str(path)]) == 0
    assert "unhashed" in capsys.readouterr().out
    assert main(["verify", str(path), "--require-hashes"]) in (3, 4)


def test_levels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["verify", str(path), "--quick"]) == 0
    out = capsys.readouterr().out
    assert "level quick" in out
    assert "no tensor was read" in out
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert "level full" in out
    assert "no SHA-256 digests" in out


def test_quick_sees_no_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(damaged(tmp_path)), "--quick", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["level"], document["checked"], document["digests"]) == ("quick", 2, None)


def test_deep_loads_tokenizer_and_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Cmf(header(), [], vocab=b"{}").build().save(tmp_path / "model.cmf")
    assert main(["verify", str(path)]) == 0
    capsys.readouterr()
    assert main(["verify", str(path), "--deep"]) == 1
    out = capsys.readouterr().out
    assert "level deep" in out
    assert "Tokenizer.parse" in out


def test_values_are_looked_at_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    infinite = T("w", F16, (2,), bytes.fromhex("007c0000"))
    path = str(Cmf(header(), [infinite]).build().save(tmp_path / "model.cmf"))
    assert main(["verify", path, "--deep"]) == 0
    assert "NonFinite" not in capsys.readouterr().out
    assert main(["verify", path, "--values"]) == 0
    assert "NonFinite.value" in capsys.readouterr().out
    assert main(["verify", path, "--values", "--strict"]) == 1


AUDIT = """
import sys
from cortiq.cli.main import main
seen = []
NAMES = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "os.remove", "os.mkdir")
def hook(event, args):
    if event.startswith(NAMES):
        seen.append(event)
    elif event == "open" and isinstance(args[0], str) and args[0].startswith(sys.argv[1]):
        seen.append(args[0][len(sys.argv[1]) + 1:])
sys.addaudithook(hook)
code = main(sys.argv[2:])
print(code, *sorted(set(seen)), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["info", "verify", "story", "diff"])
def test_p15_reading_commands_start_nothing_and_open_nothing_else(tmp_path: Path, command: str) -> None:
    shutil.copyfile(SIGNED, tmp_path / "m.cmf")
    shutil.copyfile(f"{SIGNED}.sig", tmp_path / "m.cmf.sig")
    path = str(tmp_path / "m.cmf")
    arguments = [command, path, path] if command == "diff" else [command, path]
    environment = {**os.environ, "CORTIQ_HOME": str(tmp_path / "home")}
    run = subprocess.run(
        [sys.executable, "-c", AUDIT, str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    allowed = ["m.cmf", "m.cmf.sig"] if command == "verify" else ["m.cmf"]
    assert run.stderr.split() == ["0", *allowed]


@pytest.mark.parametrize("more", ["--deep", "--values", "--require-trusted"])
def test_quick_and_more_cannot_be_meant(tmp_path: Path, more: str) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    assert main(["verify", str(path), "--quick", more]) == 2


def test_digests_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.cmf"
    write_file(path, header(), [TensorSpec("t", U8, (4,), 4, [b"abcd"])])
    assert main(["verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digests"] == {"alg": "sha256", "checked": 2}
    assert main(["verify", str(path)]) == 0
    assert "2 SHA-256 digests compared" in capsys.readouterr().out
