"""Reads a flat table of settings (config.json, GGUF metadata) by type, and refuses the keys nobody asked for.

A key that is not understood may change what the model computes, so it is an error, never a default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cortiq.errors import SourceError, UnsupportedArch

JSON = Mapping[str, object]


class Fields:
    """A view of ``table`` that remembers what was read. ``where`` names it in errors.

    ``defaults`` answers for keys that are absent or null. Every reader raises SourceError.config for a value of the
    wrong type, and, unless a default or None is allowed, for an absent one.
    """

    def __init__(self, table: JSON, where: str, defaults: JSON | None = None) -> None:
        self._table = table
        self._defaults: JSON = {} if defaults is None else defaults
        self._read: set[str] = set()
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def value(self, key: str) -> object:
        """Whatever is there, else the default, else None. An explicit null counts as absent."""
        self._read.add(key)
        found = self._table.get(key)
        return self._defaults.get(key) if found is None else found

    def stated(self, key: str) -> object:
        """As ``value``, but an explicit null is kept: some keys mean "none" by it."""
        self._read.add(key)
        return self._table[key] if key in self._table else self._defaults.get(key)

    def first(self, *keys: str) -> object:
        """The first of several names of one setting that is present, else the default of any of them."""
        self._read.update(keys)
        for table in (self._table, self._defaults):
            for key in keys:
                if table.get(key) is not None:
                    return table[key]
        return None

    def count(self, key: str) -> int:
        """A required positive integer."""
        found = self.optional_count(key)
        if found is None:
            raise self.wrong(key, "a positive integer", None)
        return found

    def optional_count(self, key: str) -> int | None:
        """A positive integer or None."""
        found = self.value(key)
        if found is None:
            return None
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise self.wrong(key, "a positive integer", found)
        return found

    def number(self, key: str) -> float:
        """A required positive finite number."""
        found = self.optional_number(key)
        if found is None:
            raise self.wrong(key, "a positive number", None)
        return found

    def optional_number(self, key: str) -> float | None:
        """A positive finite number or None."""
        found = self.value(key)
        if found is None:
            return None
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < math.inf:
            raise self.wrong(key, "a positive number", found)
        return float(found)

    def flag(self, key: str) -> bool:
        """True or false; absent is false."""
        found = self.value(key)
        if found is None:
            return False
        if not isinstance(found, bool):
            raise self.wrong(key, "true or false", found)
        return found

    def text(self, key: str) -> str:
        """A required string."""
        found = self.value(key)
        if not isinstance(found, str):
            raise self.wrong(key, "a string", found)
        return found

    def optional_table(self, key: str) -> JSON | None:
        """An object or None."""
        found = self.value(key)
        if found is not None and not isinstance(found, Mapping):
            raise self.wrong(key, "an object", found)
        return found

    def wrong(self, key: str, expected: str, found: object) -> SourceError:
        """The error of a value that cannot be meant."""
        return SourceError(f"{self.where}: {key}", code="config", expected=expected, found=found)

    def refuse_rest(self, harmless: Iterable[str], neutral: Mapping[str, tuple[object, ...]]) -> None:
        """Raise UnsupportedArch.config naming every key that was not read, is not in ``harmless`` and does not hold
        one of its values in ``neutral``.
        """
        rest = []
        ignored = set(harmless) | self._read
        for key, found in self._table.items():
            if key in ignored or (key in neutral and found in neutral[key]):
                continue
            rest.append(f"{key}={found!r}" if key in neutral else key)
        if rest:
            names = ", ".join(sorted(rest))
            raise UnsupportedArch(f"{self.where} has keys that are not supported: {names}", code="config", found=names)
