import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortiq.container.strict_json import MAX_DEPTH, parse_json
from cortiq.errors import Limit, Parse

# Everything that could be taken for structure, and what could hide it.
STRINGS = st.text(alphabet='"\\\\[]{},:u0\n\u00e9', max_size=12)
VALUES = st.recursive(
    STRINGS | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=20,
)


def count(value: Any) -> int:
    """Values in ``value``, itself included; what an empty object or array holds counts as one."""
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return 1 + (sum(map(count, inner)) if inner else 1)
    return 1


@given(VALUES, st.booleans())
def test_strings_hide_nothing_and_add_nothing_to_the_count_of_values(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse_json(data, section="header", offset=0, most_values=count(value)) == value
    with pytest.raises(Limit) as caught:
        parse_json(data, section="header", offset=0, most_values=count(value) - 1)
    assert (caught.value.code, caught.value.found) == ("json_values", count(value))


@given(STRINGS)
def test_strings_hide_no_depth(text: str) -> None:
    inside = json.dumps([text, "[" * 2 * MAX_DEPTH, text])
    for depth, deep in ((MAX_DEPTH - 1, False), (MAX_DEPTH, True)):
        data = ("[" * depth + inside + "]" * depth).encode()
        if deep:
            with pytest.raises(Parse) as caught:
                parse_json(data, section="header", offset=0)
            assert caught.value.code == "depth"
        else:
            parse_json(data, section="header", offset=0)
