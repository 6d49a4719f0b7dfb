"""The JSON of the masks section: which masks there are and where their bits lie (SPEC 5, 5.1).

Everything but the bits themselves is checked here, from the head of the section and the numbers of ``arch``.
"""

# ruff: noqa: RUF009 - key() and optional() are dataclasses.field
from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from cortiq.container.arch import Arch
from cortiq.container.mask_bits import MaskGeometry
from cortiq.container.records import (
    Place,
    array,
    boolean,
    choice,
    integer,
    key,
    known_keys,
    number,
    optional,
    read_record,
    text,
)
from cortiq.container.strict_json import MAX_VALUES, freeze, parse_json
from cortiq.errors import Bounds, Limit, Parse

COUNTS_NBYTES = 8
ALIGN = 8
MAX_META = 100 * 10**6
MAX_MASKS = 100_000
PRIORITIES = ("Fallback", "Normal", "Primary")
_COUNTS = struct.Struct("<II")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A held-out measurement (SPEC 5.1): what was measured, of how much, against what. ``extra`` holds other keys."""

    metric: str = key(text)
    value: float = key(number())
    baseline_dense: float | None = optional(number())
    n_samples: int | None = optional(integer(0))
    dataset_sha256: str | None = optional(text)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def quality(value: Any, place: Place) -> Quality:
    """An object with at least metric and value; a bare number is a declaration, not a measurement."""
    extra = _rest(value, known_keys(Quality)) if isinstance(value, Mapping) else _NOTHING
    return read_record(Quality, value, place, extra=extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskInfo:
    """What the section says about one mask. ``quality`` None means not measured, ``parent`` is a mask's name.

    ``sparsity`` is the share of inactive units as the writer states it; ``extra`` holds keys SPEC 5.1 does not name.
    """

    task_id: int = key(integer(0, 2**32 - 1))
    name: str = key(text)
    sparsity: float = key(number())
    priority: str = key(choice(*PRIORITIES))
    description: str | None = optional(text)
    quality: Quality | None = optional(quality)
    parent: str | None = optional(text)
    has_hot_pack: bool = key(boolean, False)
    has_expert_fields: bool = key(boolean, False)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class MaskPlace:
    """A mask and the bytes of its bits, ``offset`` from the start of the section.

    ``per_visit`` says whether a looped model's FFN rows are stored for every visit of a layer or once for each layer.
    """

    info: MaskInfo
    offset: int
    nbytes: int
    per_visit: bool


@dataclass(frozen=True, slots=True)
class MaskMeta:
    """The meta of a masks section. ``default_task`` need not name a mask; then nothing is masked by default."""

    default_task: str
    masks: tuple[MaskPlace, ...]
    geometry: MaskGeometry
    extra: Mapping[str, Any]


def meta_nbytes(head: bytes, nbytes: int, offset: int) -> int:
    """Size of counts and meta of a section of ``nbytes`` at ``offset`` of the file, from its first 8 bytes.

    Raises Bounds.mask_count for a section too short for its counts, Bounds.mask_meta for a meta that does not fit,
    Limit.mask_meta for one of more than 100 MB.
    """
    if nbytes < COUNTS_NBYTES:
        raise Bounds(
            "the masks section is too short for its counts",
            code="mask_count",
            section="masks",
            offset=offset,
            expected=f"at least {COUNTS_NBYTES} bytes",
            found=nbytes,
        )
    _, meta = _COUNTS.unpack_from(head)
    at = {"code": "mask_meta", "section": "masks", "offset": offset + 4, "found": meta}
    if meta > nbytes - COUNTS_NBYTES:
        raise Bounds("the meta does not fit the section", expected=f"at most {nbytes - COUNTS_NBYTES} bytes", **at)
    if meta > MAX_META:
        raise Limit("the meta is larger than the reader accepts", expected=f"at most {MAX_META} bytes", **at)
    return int(COUNTS_NBYTES + meta)


def parse_mask_meta(head: bytes, nbytes: int, arch: Arch, offset: int) -> MaskMeta:
    """The meta of a section of ``nbytes`` at ``offset`` of the file; ``head`` holds at least counts and meta.

    Raises what ``meta_nbytes`` and ``parse_json`` raise; Parse.mask_count, .mask_meta and .int_range; Bounds.mask_blob,
    .mask_len and .mask_overlap.
    """
    end = meta_nbytes(head, nbytes, offset)
    raw = bytes(head[COUNTS_NBYTES:end])
    value = parse_json(raw, section="masks", offset=offset + COUNTS_NBYTES, most_values=MAX_VALUES)
    root = Place("mask_meta", "", offset + COUNTS_NBYTES, "masks")
    if not isinstance(value, dict):
        Place("mask_meta", "(top level)", root.offset, "masks").fail("an object", value)
    for name in ("default_task", "masks"):
        if name not in value:
            root.child(name).fail("a value", "nothing")
    entries = array(_object, MAX_MASKS)(value["masks"], root.child("masks"))
    _check_count(_COUNTS.unpack_from(head)[0], len(entries), offset)
    geometry = MaskGeometry.of(arch)
    section = _Section(end, nbytes, geometry, offset)
    places = tuple(section.place(entry, root.child("masks").child(i)) for i, entry in enumerate(entries))
    _check_overlap(places, offset)
    _check_relations([place.info for place in places], root.child("masks"))
    task = text(value["default_task"], root.child("default_task"))
    return MaskMeta(task, places, geometry, _rest(value, frozenset({"default_task", "masks"})))


def _object(value: Any, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        place.fail("an object", value)
    return value


def _rest(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    return MappingProxyType({name: freeze(item) for name, item in value.items() if name not in known})


def _check_count(stated: int, found: int, offset: int) -> None:
    if stated != found:
        raise Parse(
            "the section counts other masks than its meta lists",
            code="mask_count",
            section="masks",
            offset=offset,
            expected=found,
            found=stated,
        )


@dataclass(frozen=True, slots=True)
class _Section:
    """The rules for where a mask's bits may lie."""

    meta_end: int
    nbytes: int
    geometry: MaskGeometry
    offset: int

    def place(self, entry: dict[str, Any], where: Place) -> MaskPlace:
        known = known_keys(MaskInfo) | {"blob_off", "blob_len"}
        info = read_record(MaskInfo, entry, where, extra=_rest(entry, known))
        if info.has_expert_fields and self.geometry.experts is None:
            where.child("has_expert_fields").fail("false without arch.moe", True)
        start, nbytes = (_exact(entry, name, where) for name in ("blob_off", "blob_len"))
        name = f"of mask {info.name!r}"
        if start % ALIGN or not self.meta_end <= start <= self.nbytes:
            expected = f"a multiple of {ALIGN} from {self.meta_end} to {self.nbytes}"
            raise self._misplaced(f"the bits {name} begin outside the section's room for bits", expected, start)
        sizes = self.geometry.sizes(info.has_expert_fields)
        if nbytes not in sizes:
            raise Bounds(
                f"the bits {name} have another size than the architecture gives",
                code="mask_len",
                section="masks",
                offset=self.offset + start,
                expected=" or ".join(f"{size} bytes" for size in sizes),
                found=nbytes,
            )
        if nbytes > self.nbytes - start:
            raise self._misplaced(
                f"the bits {name} do not end inside the section", self.nbytes - start, f"{nbytes} bytes"
            )
        return MaskPlace(info, start, nbytes, per_visit=nbytes == sizes[0])

    def _misplaced(self, message: str, expected: object, found: object) -> Bounds:
        return Bounds(message, code="mask_blob", section="masks", offset=self.offset, expected=expected, found=found)


def _exact(entry: dict[str, Any], name: str, where: Place) -> int:
    """An integer of any size: whether it fits is a matter of the section, not of JSON."""
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        where.child(name).fail("an integer", value if name in entry else "nothing")
    return value


def _check_overlap(places: tuple[MaskPlace, ...], offset: int) -> None:
    for before, after in pairwise(sorted(places, key=lambda place: place.offset)):
        if after.offset < before.offset + before.nbytes:
            raise Bounds(
                f"the bits of the masks {before.info.name!r} and {after.info.name!r} overlap",
                code="mask_overlap",
                section="masks",
                offset=offset + after.offset,
                expected=f"at least {before.offset + before.nbytes}",
                found=after.offset,
            )


def _check_relations(infos: list[MaskInfo], place: Place) -> None:
    """Names and ids are keys, and no mask descends from itself."""
    ids: set[int] = set()
    names: set[str] = set()
    for i, info in enumerate(infos):
        if info.task_id in ids:
            place.child(i).child("task_id").fail("one that no other mask has", info.task_id)
        if info.name in names:
            place.child(i).child("name").fail("one that no other mask has", info.name)
        ids.add(info.task_id)
        names.add(info.name)
    check_parents({info.name: info.parent for info in infos}, place)


def check_parents(parents: Mapping[str, str | None], place: Place) -> None:
    """Raises the error of ``place`` when following ``parents`` from some name comes back to it."""
    settled: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        name: str | None = start
        while name is not None and name not in settled:
            if name in path:
                place.fail("parents without a cycle", " > ".join([*path, name]))
            path[name] = None
            name = parents.get(name)
        settled.update(path)
