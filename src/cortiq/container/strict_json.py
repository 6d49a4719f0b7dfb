"""JSON as CMF files carry it: strict UTF-8 text, bounded depth, no duplicate keys, finite numbers (SPEC 2).

The standard parser alone would accept UTF-16, a BOM, NaN, 1e400, repeated keys and nesting that exhausts the stack.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from cortiq.errors import Limit, Parse

MAX_DEPTH = 64
MAX_DIGITS = 4000
MAX_VALUES = 1 << 20  # of a header or a meta: a small value takes some forty times its text
# Possessive, so that a long string costs neither memory nor backtracking. Of a text without escaped quotes.
_STRING = re.compile(r'"[^"]*+"')
_NOT_BRACKET = re.compile(r"[^\[\]{}]+")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes, *, section: str, offset: int, most_values: int | None = None) -> Any:
    """The one JSON document in ``data``, which lies at ``offset`` of the file.

    Raises Parse with one of the codes ``utf8``, ``depth``, ``dup_key``, ``nonfinite``, ``int_range``, ``surrogate``
    and ``json``; Limit.json_values for more values than ``most_values``.
    """
    return _Parser(section, offset, most_values).parse(data)


def freeze(value: Any) -> Any:
    """``value`` with every object a read-only mapping and every array a tuple."""
    if isinstance(value, dict):
        return MappingProxyType({k: freeze(v) if isinstance(v, dict | list) else v for k, v in value.items()})
    if isinstance(value, list):
        return tuple(freeze(v) if isinstance(v, dict | list) else v for v in value)
    return value


def thaw(value: Any) -> Any:
    """A fresh copy of what ``freeze`` made, as dict and list."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def dump_json(value: Any) -> bytes:
    """Compact UTF-8 with keys in the given order. Raises Parse.json for what JSON cannot say."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise Parse(f"not expressible as JSON: {error}", code="json") from error


def _most_values(text: str) -> int:
    """As many values as there can be: the outermost, the first of every object and array, those behind commas."""
    return 1 + text.count(",") + text.count("[") + text.count("{")


class _Parser:
    def __init__(self, section: str, offset: int, most_values: int | None) -> None:
        self.section = section
        self.offset = offset
        self.most_values = most_values
        self._bare: str | None = None

    def parse(self, data: bytes) -> Any:
        text = self._text(data)
        self._check_count(text)
        self._check_depth(text)
        try:
            value = json.loads(
                text,
                object_pairs_hook=self._object,
                parse_float=self._float,
                parse_int=self._int,
                parse_constant=self._constant,
            )
        except json.JSONDecodeError as error:
            at = self.offset + len(text[: error.pos].encode("utf-8"))
            found = ascii(text[error.pos : error.pos + 20]) if error.pos < len(text) else "the end"
            raise Parse(
                f"not JSON: {error.msg}", code="json", section=self.section, offset=at, expected="JSON", found=found
            ) from error
        if _SURROGATE_ESCAPE.search(text):
            self._check_surrogates(value)
        return value

    def _text(self, data: bytes) -> str:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            at = self.offset + error.start
            raise Parse(
                "not UTF-8",
                code="utf8",
                section=self.section,
                offset=at,
                expected="UTF-8",
                found=f"byte {data[error.start]:#04x}",
            ) from error
        # UTF-16 and UTF-32 of ASCII text are valid UTF-8 with a NUL in the first character or two.
        if text.startswith("\ufeff") or "\0" in text[:2]:
            self._fail("not plain UTF-8", "utf8", "UTF-8 without a BOM", data[:4])
        return text

    def _check_count(self, text: str) -> None:
        """Raise Limit.json_values before anything is made of the text."""
        if self.most_values is None or _most_values(text) <= self.most_values:
            return
        found = _most_values(self._without_strings(text))
        if found > self.most_values:
            raise Limit(
                "more JSON values than the reader accepts",
                code="json_values",
                section=self.section,
                offset=self.offset,
                expected=f"at most {self.most_values}",
                found=found,
            )

    def _check_depth(self, text: str) -> None:
        if text.count("[") + text.count("{") <= MAX_DEPTH:
            return
        depth = 0
        for bracket in _NOT_BRACKET.sub("", self._without_strings(text)):
            depth += 1 if bracket in "[{" else -1
            if depth > MAX_DEPTH:
                self._fail("nested too deeply", "depth", f"at most {MAX_DEPTH} levels", f"over {MAX_DEPTH}")

    def _without_strings(self, text: str) -> str:
        """Computed once: of a long text it takes as long as parsing it."""
        if self._bare is None:
            quoted = text.replace(r"\\", "").replace(r"\"", "")  # escapes one by one would take most of the time
            self._bare = _STRING.sub("", quoted)
        return self._bare

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self._fail("a key occurs twice in one object", "dup_key", "unique keys", ascii(key[:80]))
                seen.add(key)
        return made

    def _float(self, digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            self._fail("a number beyond the range of a double", "nonfinite", "a finite number", digits[:40])
        return value

    def _int(self, digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            self._fail("an integer too long", "int_range", f"at most {MAX_DIGITS} digits", len(digits))
        try:
            return int(digits)
        except ValueError:  # the interpreter may be set to fewer digits
            limit = sys.get_int_max_str_digits()
            self._fail("an integer too long for this interpreter", "int_range", f"at most {limit} digits", len(digits))

    def _constant(self, name: str) -> NoReturn:
        self._fail("NaN and infinities are not JSON", "nonfinite", "a finite number", name)

    def _check_surrogates(self, value: Any) -> None:
        if isinstance(value, str):
            if any("\ud800" <= char <= "\udfff" for char in value):
                self._fail("half of a surrogate pair", "surrogate", "whole characters", ascii(value[:40]))
        elif isinstance(value, dict):
            for key, item in value.items():
                self._check_surrogates(key)
                self._check_surrogates(item)
        elif isinstance(value, list):
            for item in value:
                self._check_surrogates(item)

    def _fail(self, message: str, code: str, expected: object, found: object) -> NoReturn:
        raise Parse(message, code=code, section=self.section, offset=self.offset, expected=expected, found=found)
