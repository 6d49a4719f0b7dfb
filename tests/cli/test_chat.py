"""The conversation on a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest

from builders.fake_model import FakeModel
from cortiq.cli.chat import Chat
from cortiq.cli.console import Console
from cortiq.errors import UsageError


def talk(
    lines: Iterable[str | BaseException], model: FakeModel, monkeypatch: pytest.MonkeyPatch, **more: str
) -> tuple[Chat, str, str]:
    """Run a conversation of ``lines``; then input ends."""
    out, err = io.StringIO(), io.StringIO()
    feed = iter(lines)

    def typed(prompt: str) -> str:
        line = next(feed, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", typed)
    chat = Chat(Console(out, err, {}), model, {"max_tokens": 9}, system=more.get("system"), stats=False)  # type: ignore[arg-type]
    chat.loop()
    return chat, out.getvalue(), err.getvalue()


def test_turns_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    chat, out, _ = talk(["Hi", "", "And?"], model, monkeypatch, system="Be brief.")
    assert out == "Hello.\nHello.\n\n"
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [len(asked[1]) for asked in model.asked] == [2, 4]
    assert model.asked[0][2] == {"max_tokens": 9}


def test_quit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    talk(["/quit", "Hi"], model, monkeypatch)
    assert not model.asked


def test_help_and_unknown_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = talk(["/help", "/nonsense"], FakeModel(), monkeypatch)
    assert "/reset" in out
    assert "no command /nonsense" in out


def test_reset_and_system(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, _, _ = talk(["Hi", "/reset"], FakeModel(), monkeypatch, system="A")
    assert chat.messages == [{"role": "system", "content": "A"}]
    chat, _, _ = talk(["Hi", "/system B"], FakeModel(), monkeypatch, system="A")
    assert chat.messages == [{"role": "system", "content": "B"}]
    chat, _, _ = talk(["/system"], FakeModel(), monkeypatch, system="A")
    assert chat.messages == []


def test_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    chat, out, _ = talk(["/retry", "Hi", "/retry"], model, monkeypatch)
    assert "nothing to answer again" in out
    assert [asked[1] for asked in model.asked] == [[{"role": "user", "content": "Hi"}]] * 2
    assert len(chat.messages) == 2


def test_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, err = talk(["/stats", "Hi"], FakeModel(), monkeypatch)
    assert "tok/s" in err


def test_backslash_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    talk(["one\\", "two"], model, monkeypatch)
    assert model.asked[0][1][0]["content"] == "one\ntwo"


def test_interrupted_answer_stays_in_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, _, err = talk(["Hi"], FakeModel(fails=KeyboardInterrupt()), monkeypatch)
    assert chat.messages[-1] == {"role": "assistant", "content": "Hello."}
    assert "(stopped)" in err


def test_interrupt_at_the_prompt_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    talk([KeyboardInterrupt(), "Hi"], model, monkeypatch)
    assert len(model.asked) == 1


def test_a_failing_turn_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, _, err = talk(["Hi"], FakeModel(fails=UsageError("too long")), monkeypatch)
    assert chat.messages == []
    assert "too long" in err
