"""``cortiq diff``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders.cmf import F32, U8, header
from cortiq.cli.main import main
from cortiq.container import TensorSpec, write_file


def write(path: Path, scale: float = 1.0, extra: int = 0, **fields: object) -> str:
    values = (np.arange(64, dtype=np.float32) * scale).tobytes()
    tensors = [TensorSpec("w", F32, (64,), 256, [values])]
    tensors += [TensorSpec(f"extra.{i}", U8, (4,), 4, [b"abcd"]) for i in range(extra)]
    write_file(path, header(**fields), tensors)
    return str(path)


def test_equal_files_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.cmf"), write(tmp_path / "b.cmf")
    assert main(["diff", a, b]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "header: no difference",
        "tensors: 1 the same by sha256, 0 changed, 0 added, 0 removed",
        "no difference",
    ]
    assert not err


def test_differences_end_with_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a.cmf", provenance={"tool": "x"})
    b = write(tmp_path / "b.cmf", 1.25, 30, provenance={"tool": "\x1b[31my"})
    assert main(["diff", a, b]) == 5
    out = capsys.readouterr().out
    assert "header: 1 fields differ" in out
    assert "\x1b" not in out
    assert "  ~ w  f32 64, relative error 0.25, largest 15.8" in out
    assert out.count("  + extra.") == 20
    assert "and 10 more" in out
    assert out.splitlines()[-1] == "the files differ"
    assert main(["diff", b, a, "--all", "--no-values"]) == 5
    out = capsys.readouterr().out
    assert out.count("  - extra.") == 30
    assert "relative error" not in out


def test_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.cmf", 0.0), write(tmp_path / "b.cmf")
    assert main(["diff", a, b, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["equal"] is False
    (change,) = document["tensors"]["changed"]
    assert (change["name"], change["relative_error"], change["largest_error"]) == ("w", "inf", 63.0)


def test_weak_identity_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(__file__).parents[1] / "data" / "container" / "llama-q8.cmf"
    assert main(["diff", str(data), str(data)]) == 0
    assert "hash64, which does not see" in capsys.readouterr().out


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.cmf").write_bytes(b"x" * 200)
    assert main(["diff", write(tmp_path / "a.cmf"), str(tmp_path / "x.cmf")]) == 3


def test_versions_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.cmf")
    for value in ("x", "y"):
        assert main(["edit", path, "--set", f"license={value}"]) == 0
    capsys.readouterr()
    assert main(["diff", f"{path}@1", f"{path}@2"]) == 5
    assert '  license: null -> "x"' in capsys.readouterr().out
    assert main(["diff", f"{path}@2", path]) == 5
    assert '  license: "x" -> "y"' in capsys.readouterr().out
    assert main(["diff", f"{path}@3", path]) == 0
    assert main(["diff", f"{path}@1", write(tmp_path / "b.cmf")]) == 0


def test_a_version_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.cmf")
    assert main(["diff", f"{path}@2", path]) == 2
    err = capsys.readouterr().err
    assert "UsageError.version" in err
    assert "a.cmf" in err
    assert main(["diff", f"{path}@x", path]) == 2
    assert main(["diff", f"{path}@{'9' * 5000}", path]) != 0
    assert main(["diff", f"{tmp_path}/none@1", path]) == 2


def test_a_path_that_is_there_means_what_it_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.cmf")
    other = write(tmp_path / "a.cmf@1", 2.0)
    assert main(["diff", other, write(tmp_path / "b.cmf", 2.0)]) == 0
    assert main(["diff", other, path]) == 5
