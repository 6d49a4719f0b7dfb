"""The check of tokenizer and template behind ``verify --deep``."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cmf import F16, Cmf, T, header
from cortiq.container import open_single, verify
from cortiq.edit.deep import check_text

LLAMA = Path(__file__).parents[1] / "data" / "container" / "llama-q8.cmf"


def kinds(made: Cmf, folder: Path) -> list[tuple[str, str | None]]:
    with open_single(made.save(folder / "x.cmf")) as file:
        report = verify(file, checks=[check_text])
        assert report.level == "deep"
        return [(problem.kind, problem.section) for problem in report.problems]


def small(vocab: bytes = b"", template: str | None = None) -> Cmf:
    chat = {} if template is None else {"tokenizer_config": {"chat_template": template, "eos_token_ids": [2]}}
    return Cmf(header(**chat), [T("a", F16, (4,), bytes(8))], vocab=vocab).build()


def test_a_whole_file_passes() -> None:
    with open_single(LLAMA) as file:
        assert verify(file, checks=[check_text], strict=True).problems == ()


def test_nothing_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.edit.deep.try_text", lambda *_: pytest.fail("there is nothing to load"))
    assert kinds(small(), tmp_path) == []


def test_a_bad_tokenizer_and_a_bad_template(tmp_path: Path) -> None:
    found = kinds(small(b"{}", "{% if %}"), tmp_path)
    assert found == [("Tokenizer.parse", "vocab"), ("Template.syntax", "header")]


def test_a_tokenizer_too_large_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.container.file.MAX_VOCAB", 1)
    assert kinds(small(b"{}"), tmp_path) == [("Limit.vocab", "vocab")]
