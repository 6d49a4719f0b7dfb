"""Header fields changed in place (SPEC 2, 9): a few KiB appended instead of a file rewritten."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cortiq.container.envelope import Envelope
from cortiq.container.growth import grow
from cortiq.container.locking import InPlace
from cortiq.container.strict_json import dump_json, parse_json
from cortiq.errors import Parse, UsageError

# Fields the container keeps in step with the bytes.
KEPT = frozenset({"format", "version", "section_hashes", "digests", "shard"})


def edit_header(
    path: str | os.PathLike[str],
    set_fields: Mapping[str, Any],
    unset_fields: Sequence[str] = (),
    allowed: InPlace | None = None,
) -> tuple[Envelope, bool]:
    """Set and remove header fields; gives the envelope and whether anything changed.

    A field is named by its keys, joined by dots; in an array a number is the index of an element. Objects on the way
    are made when they are absent. The result is a header ``open`` accepts, or nothing is written.

    Raises UsageError.field for a name that leads nowhere or to a field the container keeps, and what ``grow`` raises.
    """
    changed = False

    def change(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal changed
        before = dump_json(fields)
        for name, value in set_fields.items():
            _set(fields, name, value)
        for name in unset_fields:
            _unset(fields, name)
        changed = dump_json(fields) != before
        return fields

    words = [f"set {name}" for name in set_fields] + [f"unset {name}" for name in unset_fields]
    envelope = grow(path, header=change, allowed=allowed, what=f"edit: {', '.join(words)}")
    return envelope, changed


def parse_assignment(text: str) -> tuple[str, Any]:
    """``name=value`` as name and value.

    A value that is JSON is what it says, other text is itself. ``@FILE`` is the text of a file, or what it says when
    its name ends in ``.json``. Raises UsageError.assignment, Parse for a ``.json`` file that is not JSON, and OSError.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("not an assignment", code="assignment", expected="name=value", found=text)
    if value.startswith("@"):
        raw = Path(value[1:]).expanduser().read_bytes()
        if value.endswith(".json"):
            return name, parse_json(raw, section=value[1:], offset=0)
        try:
            return name, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError("the file is not UTF-8 text", code="assignment", path=value[1:]) from error
    try:
        return name, parse_json(value.encode("utf-8", "surrogatepass"), section="value", offset=0)
    except Parse:
        return name, value


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    keys = _keys(name)
    holder: Any = fields
    for depth, key in enumerate(keys[:-1]):
        if isinstance(holder, dict):
            holder.setdefault(key, {})
        holder = holder[_index(holder, key, keys[: depth + 1])]
    if isinstance(holder, dict):
        holder[keys[-1]] = value
    else:
        holder[_index(holder, keys[-1], keys)] = value


def _unset(fields: dict[str, Any], name: str) -> None:
    keys = _keys(name)
    holder: Any = fields
    for depth, key in enumerate(keys[:-1]):
        holder = holder[_index(holder, key, keys[: depth + 1])]
    del holder[_index(holder, keys[-1], keys)]


def _keys(name: str) -> list[str]:
    keys = name.split(".")
    if not all(keys):
        raise UsageError("not the name of a field", code="field", expected="keys joined by dots", found=name)
    if keys[0] in KEPT:
        raise UsageError("this field follows from the content of the file", code="field", found=name)
    return keys


def _index(holder: Any, key: str, keys: list[str]) -> Any:
    """What ``key`` is in ``holder``; ``keys`` says where, for the error."""
    if isinstance(holder, dict) and key in holder:
        return key
    if isinstance(holder, list) and key.isdecimal() and int(key) < len(holder):
        return int(key)
    raise UsageError("there is no such field", code="field", found=".".join(keys))
