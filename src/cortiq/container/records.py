"""Typed records read from JSON objects: a frozen dataclass whose fields say what values they accept.

A field is made by ``key(rule)`` (the object must have it), ``key(rule, default)`` (it may be missing) or
``optional(rule)`` (it may be missing or null, then None). Keys without a field are left alone (SPEC 1.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, NoReturn, TypeVar

from cortiq.container.strict_json import freeze
from cortiq.errors import Parse

INT_MAX = 2**31 - 1
_EXACT_IN_DOUBLE = 2**53
_F32_MIN = 2.0**-126
_F32_MAX = (2 - 2.0**-23) * 2.0**127

T = TypeVar("T")
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is in the JSON of a section, and the error code its object answers with."""

    code: str
    path: str
    offset: int
    section: str = "header"

    def child(self, name: object) -> Place:
        """The place of a member or an element."""
        step = f"[{name}]" if isinstance(name, int) else f".{name}" if self.path else str(name)
        return Place(self.code, self.path + step, self.offset, self.section)

    def fail(self, expected: object, found: object, code: str | None = None) -> NoReturn:
        """Raise Parse for this value."""
        shown = repr(found)
        raise Parse(
            f"{self.section} field {self.path} is not valid",
            code=code or self.code,
            section=self.section,
            offset=self.offset,
            expected=expected,
            found=shown if len(shown) <= 80 else shown[:77] + "...",
        )


Rule = Callable[[Any, Place], Any]


def key(rule: Rule, default: Any = MISSING) -> Any:
    """A field that null does not satisfy, required unless it has a default."""
    if default is MISSING:
        return field(metadata={"rule": rule})
    return field(default=default, metadata={"rule": rule})


def optional(rule: Rule) -> Any:
    """A field that may be missing or null."""
    return field(default=None, metadata={"rule": rule, "null": True})


def integer(low: int, high: int = INT_MAX, *, exact_to: int = _EXACT_IN_DOUBLE) -> Rule:
    """An integer from ``low`` to ``high``; true, 8.0 and "8" are none.

    One beyond ``exact_to`` answers with the code ``int_range``, for a writer may have lost its low digits.
    """

    def check(value: Any, place: Place) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            place.fail("an integer", value)
        if abs(value) > exact_to:
            place.fail(f"an integer up to {high}", f"about 2^{abs(value).bit_length() - 1}", "int_range")
        if not low <= value <= high:
            place.fail(f"an integer from {low} to {high}", value)
        return value

    return check


def number(low: float = -_F32_MAX, high: float = _F32_MAX) -> Rule:
    """A number from ``low`` to ``high``, integers included, as float."""

    def check(value: Any, place: Place) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            place.fail("a number", value)
        if not low <= value <= high:
            place.fail(f"a number from {low:g} to {high:g}", value)
        return float(value)

    return check


def positive(high: float = _F32_MAX) -> Rule:
    """A number above zero that an f32 holds without becoming subnormal, zero or infinite."""
    return number(_F32_MIN, high)


def boolean(value: Any, place: Place) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        place.fail("true or false", value)
    return value


def text(value: Any, place: Place) -> str:
    """A string."""
    if not isinstance(value, str):
        place.fail("a string", value)
    return value


def hash64_digits(value: Any, place: Place) -> int:
    """A hash64 as 1 to 16 hexadecimal digits of either case (SPEC 8.1), as the number."""
    if not isinstance(value, str) or not 1 <= len(value) <= 16 or not _HEX.issuperset(value):
        place.fail("1 to 16 hexadecimal digits", value)
    return int(value, 16)


def choice(*allowed: str) -> Rule:
    """One of some strings."""

    def check(value: Any, place: Place) -> str:
        if value not in allowed or not isinstance(value, str):
            place.fail(f"one of {', '.join(allowed)}", value)
        return value

    return check


def array(rule: Rule, most: int = 100_000) -> Rule:
    """An array of at most ``most`` elements, as a tuple."""

    def check(value: Any, place: Place) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            place.fail("an array", value)
        if len(value) > most:
            place.fail(f"at most {most} elements", len(value))
        return tuple(rule(item, place.child(i)) for i, item in enumerate(value))

    return check


def record(cls: type[T]) -> Rule:
    """An object with the fields of ``cls``."""

    def check(value: Any, place: Place) -> T:
        return read_record(cls, value, place)

    return check


def anything(value: Any, place: Place) -> Any:
    """Any JSON value, read-only."""
    return freeze(value)


def read_record(cls: type[T], value: Any, place: Place, **extra: Any) -> T:
    """The JSON object ``value`` as ``cls``; ``extra`` gives fields without a rule.

    Raises Parse with the code of ``place``, or ``int_range`` for an absurd integer.
    """
    if not isinstance(value, Mapping):
        place.fail("an object", value)
    made = dict(extra)
    for item in fields(cls):  # type: ignore[arg-type]
        rule = item.metadata.get("rule")
        if rule is None:
            continue
        if item.name not in value:
            if item.default is MISSING:
                place.child(item.name).fail("a value", "nothing")
            continue
        found = value[item.name]
        if found is None and item.metadata.get("null"):
            continue
        made[item.name] = rule(found, place.child(item.name))
    return cls(**made)


def known_keys(cls: type[Any]) -> frozenset[str]:
    """The JSON keys ``cls`` reads."""
    return frozenset(item.name for item in fields(cls) if _has_rule(item))


def _has_rule(item: Field[Any]) -> bool:
    return "rule" in item.metadata
