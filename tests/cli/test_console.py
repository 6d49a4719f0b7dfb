"""Streams, tables, sizes, progress."""

from __future__ import annotations

import io
import json

import pytest

from cortiq.cli.console import Console, human_bytes, human_count
from cortiq.cli.progress import Bar, JsonLines, Silent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(*, terminal: bool = False, **environment: str) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    return Console(out, err, environment), out, err


def test_data_and_talk_go_different_ways() -> None:
    made, out, err = console()
    made.line("data")
    made.note("talk")
    made.warning("odd")
    made.failure("bad")
    assert out.getvalue() == "data\n"
    assert err.getvalue() == "talk\nwarning: odd\nerror: bad\n"


def test_quiet_and_verbose() -> None:
    made, _, err = console()
    made.configure(color="auto", quiet=True, verbosity=0, progress="auto")
    made.note("talk")
    made.detail("more")
    assert err.getvalue() == ""
    made.configure(color="auto", quiet=False, verbosity=1, progress="auto")
    made.detail("more")
    assert err.getvalue() == "more\n"


def test_table_aligns() -> None:
    made, out, _ = console()
    made.table(["name", "n"], [["a", "1"], ["long one", "100"]], right=(1,))
    assert out.getvalue() == "name        n\na           1\nlong one  100\n"


def test_words_of_a_model_do_not_command_the_terminal() -> None:
    made, out, _ = console(terminal=True)
    made.say("a\x1b[31mb\nü\t")
    assert out.getvalue() == "a\\x1b[31mb\nü\t"
    made, out, _ = console()
    made.say("a\x1b[31mb")
    assert out.getvalue() == "a\x1b[31mb"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (98 << 20, "98.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.00 TiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_human_count() -> None:
    assert [human_count(n) for n in (999, 134_515_008, 494_032_768)] == ["999", "134.5 M", "494.0 M"]


def test_progress_is_drawn_on_a_terminal_only() -> None:
    assert isinstance(console(terminal=True, TERM="xterm")[0].progress("x"), Bar)
    assert isinstance(console(terminal=False, TERM="xterm")[0].progress("x"), Silent)
    assert isinstance(console(terminal=True, TERM="dumb")[0].progress("x"), Silent)
    assert isinstance(console(terminal=True, TERM="xterm", CI="true")[0].progress("x"), Silent)


def test_progress_as_json_lines() -> None:
    made, out, err = console()
    made.configure(color="auto", quiet=False, verbosity=0, progress="json")
    progress = made.progress("converting")
    assert isinstance(progress, JsonLines)
    with progress:
        progress.update(50, 100)
        progress.update(100, 100)
    lines = [json.loads(line) for line in err.getvalue().splitlines()]
    assert out.getvalue() == ""
    assert lines[-1] | {"rate": 0} == {
        "progress": "converting",
        "done": 100,
        "total": 100,
        "unit": "B",
        "rate": 0,
        "eta": 0.0,
    }


def test_the_bar_leaves_a_clean_line() -> None:
    made, _, err = console(terminal=True, TERM="xterm")
    with made.progress("converting") as progress:
        progress.update(1 << 20, 4 << 20)
    assert "1.0 MiB of 4.0 MiB" in err.getvalue()
    assert err.getvalue().endswith("\r\x1b[K")
