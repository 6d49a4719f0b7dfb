"""Tensor names: the pool of the directory and what a name may be (SPEC 3). Names are opaque here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.records_table import first, record_offset
from cortiq.errors import Bounds, FormatError, Parse

MAX_NAME_NBYTES = 2**16 - 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def read_names(pool: bytes, offsets: NDArray[Any], lengths: NDArray[Any], base: int) -> dict[str, int]:
    """The names of all records of a directory at ``base``, in order, each with its record's number.

    Names may share bytes of the pool.

    Raises Bounds.name, Parse.name_empty, .name_utf8, .name_ctrl and .name_dup.
    """
    starts = offsets.astype(np.int64)
    ends = starts + lengths
    beyond = first(ends > len(pool))
    if beyond is not None:
        found = f"{starts[beyond]} + {lengths[beyond]}"
        raise _error(Bounds, beyond, base, "name", "lies outside the pool", (f"at most {len(pool)} bytes", found))
    empty = first(lengths == 0)
    if empty is not None:
        raise _error(Parse, empty, base, "name_empty", "is empty", ("at least 1 byte", 0))
    names = _decode(pool, list(zip(starts.tolist(), ends.tolist(), strict=True)), base)
    positions = dict(zip(names, range(len(names)), strict=True))
    if len(positions) != len(names):
        raise _duplicate(names, base)
    return positions


def check_name(name: str) -> None:
    """Raise Parse unless ``name`` may be written: not empty, at most 65,535 bytes of UTF-8, no control characters."""
    if not name:
        raise Parse("a tensor name is empty", code="name_empty", tensor=name)
    try:
        nbytes = len(name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Parse("a tensor name is not expressible as UTF-8", code="name_utf8", found=ascii(name)) from error
    if nbytes > MAX_NAME_NBYTES:
        raise Bounds("a tensor name is too long", code="name", expected=f"at most {MAX_NAME_NBYTES}", found=nbytes)
    if _CONTROL.search(name):
        raise Parse("a tensor name holds a control character", code="name_ctrl", tensor=name)


def same_after_normalization(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of different names that Unicode normalization (NFC) makes equal."""
    seen: dict[str, str] = {}
    pairs = []
    for name in names:
        earlier = seen.setdefault(name if name.isascii() else unicodedata.normalize("NFC", name), name)
        if earlier != name:
            pairs.append((earlier, name))
    return pairs


def _decode(pool: bytes, spans: list[tuple[int, int]], base: int) -> list[str]:
    if pool.isascii():
        text = pool.decode("ascii")
        names = [text[start:end] for start, end in spans]
        if text.isprintable():
            return names
    else:
        names = [_decode_one(pool[start:end], i, base) for i, (start, end) in enumerate(spans)]
    for i, name in enumerate(names):
        if found := _CONTROL.search(name):
            facts = ("no control characters", ascii(found.group()))
            raise _error(Parse, i, base, "name_ctrl", "holds a control character", facts)
    return names


def _decode_one(raw: bytes, i: int, base: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _error(Parse, i, base, "name_utf8", "is not UTF-8", ("UTF-8", raw[:40])) from error


def _duplicate(names: list[str], base: int) -> FormatError:
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name in seen:
            break
        seen[name] = i
    error = _error(Parse, i, base, "name_dup", f"is that of record {seen[name]}", ("unique names", name[:80]))
    error.tensor = name
    return error


def _error(
    kind: type[FormatError], i: int, base: int, code: str, what: str, facts: tuple[object, object]
) -> FormatError:
    return kind(
        f"the name of record {i} {what}",
        code=code,
        section="directory",
        offset=record_offset(base, i),
        expected=facts[0],
        found=facts[1],
    )
