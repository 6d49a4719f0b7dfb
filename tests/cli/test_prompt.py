"""Prompts from the argument and from standard input, as a shell gives them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortiq.cli.console import Console
from cortiq.cli.prompt import assemble
from cortiq.errors import UsageError


@pytest.fixture
def console() -> Console:
    return Console(io.StringIO(), io.StringIO(), {})


@pytest.fixture
def stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is standard input; write to it before use."""
    path = tmp_path / "stdin"
    path.write_bytes(b"")
    with path.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        yield path


def test_piped_text_stands_before_the_prompt(console: Console, stdin: Path) -> None:
    stdin.write_text("a diff\n")
    assert assemble("Summarize.", console) == "a diff\n\nSummarize."


def test_piped_text_alone(console: Console, stdin: Path) -> None:
    stdin.write_text("a question\n")
    assert assemble(None, console) == "a question\n"


def test_dash_is_standard_input_alone(console: Console, stdin: Path) -> None:
    stdin.write_text("a question")
    assert assemble("-", console) == "a question"


def test_empty_input_changes_nothing(console: Console, stdin: Path) -> None:
    assert assemble("Hello", console) == "Hello"
    assert assemble(None, console) is None


def test_a_device_is_not_read(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert assemble("Hello", console) == "Hello"


def test_no_standard_input(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert assemble("Hello", console) == "Hello"
    with pytest.raises(UsageError, match="no standard input"):
        assemble("-", console)


def test_input_must_be_utf8(console: Console, stdin: Path) -> None:
    stdin.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        assemble("Hello", console)


def test_a_silent_pipe_is_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    err = io.StringIO()
    read, write = os.pipe()
    monkeypatch.setattr("cortiq.cli.prompt.PATIENCE", 0.0)

    class Ending(io.StringIO):
        def flush(self) -> None:
            if self.getvalue():
                os.close(write)

    err = Ending()
    with open(read, encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert assemble("Hello", Console(io.StringIO(), err, {})) == "Hello"
    assert "waiting for standard input" in err.getvalue()
