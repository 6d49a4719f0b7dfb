"""Skill records of the header: who a skill is, how it is chosen, and which base it was cut against (SPEC 9, 9.1)."""

# ruff: noqa: RUF009 - key() and optional() are dataclasses.field
from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.records import (
    Place,
    anything,
    hash64_digits,
    integer,
    key,
    known_keys,
    number,
    optional,
    read_record,
    text,
)
from cortiq.container.strict_json import freeze
from cortiq.errors import Parse

METRICS = ("mse", "mse_unit")
MAX_RANK = 2**16
_WRITABLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})

F16 = NDArray[np.float16]


def _f16(value: Any, place: Place) -> F16:
    """Standard base64 with padding over little-endian f16 values, as a read-only array."""
    encoded = text(value, place)
    try:
        raw = binascii.a2b_base64(encoded.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        place.fail("base64", f"{encoded[:40]} ({error})")
    if len(raw) % 2:
        place.fail("a whole number of f16 values", f"{len(raw)} bytes")
    return np.frombuffer(raw, "<f2")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """The affine subspace a prompt is compared with to choose a skill (SPEC 9).

    ``phi_layer``  visit after which the residual stream is taken
    ``mean``       f16 [hidden_size]
    ``basis``      f16 [rank, hidden_size]; rank 0 leaves the mean alone
    ``holdout``    f16 [samples, hidden_size], with ``err_mean`` and ``err_std`` what a calibrated router knows
    """

    metric: str = key(text)
    phi_layer: int = key(integer(0))
    mean: F16 = key(_f16)
    basis: F16 = key(_f16)
    rank: int | None = optional(integer(0, MAX_RANK))
    err_mean: float | None = optional(number())
    err_std: float | None = optional(number())
    holdout: F16 | None = optional(_f16)
    holdout_n: int | None = optional(integer(0))
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def unusable(self, visits: int) -> str | None:
        """Why a model of ``visits`` layer visits cannot route by it, None when it can."""
        if self.metric not in METRICS:
            return f"the metric {self.metric!r} is not one of {', '.join(METRICS)}"
        if self.phi_layer >= visits:
            return f"phi_layer {self.phi_layer} is not below {visits}"
        if not (np.isfinite(self.mean).all() and np.isfinite(self.basis).all()):
            return "the mean or the basis is not finite"
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skill:
    """A record of the registry. ``layers``, ``quality``, ``base_arch`` and ``provenance`` are informative.

    ``layers``         the whole numbers of the record's list
    ``task``           the mask a specialist activates
    ``base_dir_hash``  hash64 of the directory of the base the file was cut against, None in a file with a backbone
    ``extra``          keys SPEC 9 does not name
    """

    id: str
    name: str | None = optional(text)
    layers: tuple[int, ...] = ()
    selection: Selection | None = None
    input_mask_task: str | None = optional(text)
    quality: Any = optional(anything)
    base_dir_hash: int | None = None
    base_arch: str | None = optional(text)
    task: str | None = optional(text)
    provenance: Any = optional(anything)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def __repr__(self) -> str:
        return f"Skill({self.id!r}, {self.name!r})"


_KNOWN = known_keys(Skill) | {"id", "layers", "selection", "base_dir_hash"}
_SELECTION_KEYS = known_keys(Selection)


def read_skills(value: Any, present: bool, hidden_size: int, offset: int) -> tuple[Skill, ...]:
    """The header's ``skills``, a header at ``offset`` of the file.

    Raises Parse with one of the codes ``skill``, ``skill_id``, ``skill_dup``, ``skill_file`` (a base_dir_hash that is
    no hash), ``selection`` and ``int_range``.
    """
    if not present:
        return ()
    root = Place("skill", "skills", offset)
    if not isinstance(value, list):
        root.fail("an array", value)
    skills: list[Skill] = []
    seen = set()
    for i, item in enumerate(value):
        skill = _read_skill(item, hidden_size, root.child(i))
        if skill.id in seen:
            root.child(i).child("id").fail("an id no other skill has", skill.id, "skill_dup")
        seen.add(skill.id)
        skills.append(skill)
    return tuple(skills)


def check_new_id(skill_id: str) -> None:
    """Raises Parse.skill_id unless a writer may give a skill this id: a letter or digit, then up to 63 more of letters,
    digits, ``_`` and ``-``."""
    if not is_writable_id(skill_id):
        raise Parse(
            "not an id for a skill", code="skill_id", expected=f"an id matching {_WRITABLE_ID.pattern}", found=skill_id
        )


def is_writable_id(skill_id: str) -> bool:
    """Whether ``check_new_id`` accepts it; reading is more lenient."""
    return _WRITABLE_ID.fullmatch(skill_id) is not None


def _read_skill(value: Any, hidden_size: int, place: Place) -> Skill:
    if not isinstance(value, Mapping):
        place.fail("an object", value)
    if "id" not in value:
        place.child("id").fail("a value", "nothing")
    layers, bound, selection = value.get("layers"), value.get("base_dir_hash"), value.get("selection")
    bound_place = replace(place.child("base_dir_hash"), code="skill_file")
    return read_record(
        Skill,
        value,
        place,
        id=_read_id(value["id"], place.child("id")),
        layers=tuple(n for n in layers if _is_layer(n)) if isinstance(layers, list) else (),
        selection=None if selection is None else _read_selection(selection, hidden_size, place.child("selection")),
        base_dir_hash=None if bound is None else hash64_digits(bound, bound_place),
        extra=_rest(value, _KNOWN),
    )


def _read_id(value: Any, place: Place) -> str:
    """A dot would make the names of a skill's tensors ambiguous, a slash a path of it."""
    found = text(value, place)
    if not found or "." in found or "/" in found:
        place.fail('an id without "." and "/"', found, "skill_id")
    return found


def _is_layer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_selection(value: Any, hidden_size: int, place: Place) -> Selection:
    place = Place("selection", place.path, place.offset)
    if not isinstance(value, Mapping):
        place.fail("an object or null", value)
    made = read_record(Selection, value, place, extra=_rest(value, _SELECTION_KEYS))
    if made.mean.size != hidden_size:
        place.child("mean").fail(f"{hidden_size} values", made.mean.size)
    rank = made.basis.size // hidden_size if made.rank is None else made.rank
    if made.basis.size != rank * hidden_size:
        place.child("basis").fail(f"{rank} x {hidden_size} values", made.basis.size)
    shaped: dict[str, Any] = {name: getattr(made, name) for name in _SELECTION_KEYS}
    shaped |= {"rank": rank, "basis": made.basis.reshape(rank, hidden_size), "extra": made.extra}
    if made.holdout is not None:
        count = made.holdout.size // hidden_size if made.holdout_n is None else made.holdout_n
        if made.holdout.size != count * hidden_size:
            place.child("holdout").fail(f"{count} x {hidden_size} values", made.holdout.size)
        shaped |= {"holdout_n": count, "holdout": made.holdout.reshape(count, hidden_size)}
    return Selection(**shaped)


def _rest(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    return MappingProxyType({name: freeze(item) for name, item in value.items() if name not in known})
