"""``cortiq story``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.cmf import F16, Cmf, T, header
from cortiq.cli.main import main

LLAMA = Path(__file__).parents[1] / "data" / "container" / "llama-q8.cmf"


def test_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", str(LLAMA)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(str(LLAMA))
    assert "\nThis is a llama model of " in out
    assert all(len(line) <= 100 for line in out.splitlines()[1:])
    assert not err


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["story", str(LLAMA), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["story"]) == ["model", "origin", "weights", "text", "proof"]


def test_b19_a_terminal_obeys_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin = {"tool": "\x1b[2Jevil\u202e"}
    path = Cmf(header(provenance=origin), [T("a", F16, (4,), bytes(8))]).build().save(tmp_path / "x.cmf")
    assert main(["story", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "evil" in out
