"""Stop strings: the same result however the stream is cut, and nothing shown that belongs to one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortiq.errors import UsageError
from cortiq.text.stop import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    watcher, shown = StopStrings(stops), ""
    for piece in pieces:
        text, stopped = watcher.push(piece)
        shown += text
        if stopped:
            assert watcher.push("more") == ("", True)
            assert watcher.flush() == ""
            return shown, True
    return shown + watcher.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    return (text, False) if not ends else (text[: min(ends)[1]], True)


@given(
    st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3),
    st.lists(st.text(alphabet="ab\nc", max_size=5), max_size=12),
)
def test_any_cut_gives_what_the_whole_gives(stops: list[str], pieces: list[str]) -> None:
    assert run(stops, pieces) == expected(stops, "".join(pieces))


def test_only_a_possible_beginning_is_held_back() -> None:
    watcher = StopStrings(["###", "\n\nUser:"])
    assert watcher.push("Hello #") == ("Hello ", False)
    assert watcher.push("1\n") == ("#1", False)
    assert watcher.push("x##") == ("\nx", False)
    assert watcher.push("# rest") == ("", True)
    assert watcher.matched == "###"


def test_without_stop_strings_everything_passes() -> None:
    assert StopStrings().push("abc") == ("abc", False)
    assert StopStrings("b").push("abc") == ("a", True)


@pytest.mark.parametrize("wrong", [[""], ["a", ""], [3]])
def test_a_stop_string_must_have_text(wrong: list[str]) -> None:
    with pytest.raises(UsageError):
        StopStrings(wrong)
