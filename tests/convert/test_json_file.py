"""Side files of a checkpoint: an object, or an error that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cortiq.convert.json_file import optional_json, read_json
from cortiq.errors import SourceError

DEEP = b'{"a": ' + b"[" * 100_000


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe{}", DEEP], ids=lambda content: repr(content[:8]))
def test_anything_but_an_object_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"config\.json") as caught:
        read_json(path)
    assert caught.value.code == "json"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert optional_json(tmp_path / "config.json") == {}
    with pytest.raises(SourceError) as caught:
        read_json(tmp_path / "config.json")
    assert caught.value.code == "missing_file"
