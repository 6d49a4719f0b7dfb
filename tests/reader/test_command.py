"""``python cmf_reader.py FILE``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cmf_reader
from builders.cmf import U8, Cmf, T, header, two_layers


def run(*arguments: object) -> tuple[int, bytes, str]:
    command = [sys.executable, cmf_reader.__file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


def test_text_lists_the_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cmf_reader.main([str(two_layers().save(tmp_path / "m.cmf"))]) == 0
    out = capsys.readouterr().out
    assert "'model.layers.0.mlp.gate_proj.weight' [96, 64]" in out
    assert "masks: ['general', 'code']" in out


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cmf_reader.main([str(two_layers().save(tmp_path / "m.cmf")), "--json", "--verify"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert (report["problems"], report["compared"]) == ([], ["hash64"])
    assert report["header"]["arch"]["hidden_size"] == 64
    assert [tensor["dtype"] for tensor in report["tensors"]][:3] == ["q8_row", "f16", "q4_tiled"]


def test_dump_writes_npy_or_bytes(tmp_path: Path) -> None:
    path = Cmf(header(), [T("config", U8, (2,), b"{}"), *two_layers().tensors]).build().save(tmp_path / "m.cmf")
    assert run(path, "--dump", "config") == (0, b"{}", "")
    code, out, _ = run(path, "--dump", "model.layers.0.mlp.gate_proj.weight")
    assert code == 0
    values = np.load(io.BytesIO(out))
    assert values.tobytes() == cmf_reader.CmfFile(path).tensors["model.layers.0.mlp.gate_proj.weight"].array().tobytes()


def test_a_closed_pipe_ends_it_silently(tmp_path: Path) -> None:
    path = Cmf(header(), [T(f"t{i:05}", U8, (1,), b"x") for i in range(5000)]).build().save(tmp_path / "m.cmf")
    command = [sys.executable, cmf_reader.__file__, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_exit_codes(tmp_path: Path) -> None:
    made = two_layers()
    damaged = made.put(made.get("vocab_off"), b"[").save(tmp_path / "damaged.cmf")
    future = two_layers().set("version", 3).save(tmp_path / "future.cmf")
    text = tmp_path / "text.cmf"
    text.write_text("no model")
    for arguments, expected in (
        ([damaged], 0),
        ([damaged, "--verify"], 4),
        ([future], 7),
        ([text], 3),
        ([tmp_path / "none.cmf"], 1),
        ([damaged, "--dump", "none"], 7),
        ([tmp_path], 2),
        ([damaged, "--no-such-option"], 2),
    ):
        code, out, err = run(*arguments)
        assert code == expected, arguments
        assert err.startswith(("error: ", "usage: ")) if code and "--verify" not in arguments else not err
        assert not out or code in (0, 4)
