"""Task masks: which neurons, heads, layers and experts a task uses (SPEC 5). The weights do not change.

Reading gives immutable masks with the bits as NumPy arrays; ``encode_masks`` is the exact opposite.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from cortiq.container.arch import Arch
from cortiq.container.mask_bits import Bits, MaskGeometry, pack_rows, row_nbytes, tail_row, unpack_rows
from cortiq.container.mask_meta import ALIGN, COUNTS_NBYTES, MaskInfo, MaskMeta, MaskPlace, Quality, parse_mask_meta
from cortiq.container.strict_json import dump_json, thaw
from cortiq.errors import Parse, UsageError

AREAS = ("ffn", "head", "gate", "expert")
_ORDER = ("task_id", "name", "description", "sparsity", "quality", "parent", "priority")


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """One mask; True is active. The arrays are read-only.

    ``ffn``      bool [passes, num_layers, intermediate_size]; passes is num_loops, or 1 where all passes are alike
    ``heads``    bool [num_layers, num_attention_heads]
    ``gates``    bool [num_layers]
    ``experts``  bool [num_layers, num_experts], or None: the router is not restricted
    """

    info: MaskInfo
    ffn: Bits
    heads: Bits
    gates: Bits
    experts: Bits | None

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def is_open(self) -> bool:
        """True when the mask restricts nothing."""
        return all(part.all() for part in (self.ffn, self.heads, self.gates, self.experts) if part is not None)

    @property
    def active_layers(self) -> int:
        """Layers whose gate is on."""
        return int(np.count_nonzero(self.gates))

    def ffn_row(self, visit: int) -> Bits:
        """The neurons [intermediate_size] of a visit: pass * num_layers + layer."""
        at, layer = divmod(visit, self.ffn.shape[1])
        row: Bits = self.ffn[at if self.ffn.shape[0] > 1 else 0, layer]
        return row

    def inactive_shares(self) -> dict[str, float]:
        """The share of inactive neurons, heads, layers and, where the mask has them, experts, as the bits say."""
        parts = {"ffn": self.ffn, "heads": self.heads, "layers": self.gates, "experts": self.experts}
        return {name: 1 - np.count_nonzero(part) / part.size for name, part in parts.items() if part is not None}

    def check_experts(self) -> None:
        """Raises Parse.mask_empty_experts when the router of some layer would have no expert to choose."""
        if self.experts is None:
            return
        empty = np.flatnonzero(~self.experts.any(axis=1))
        if empty.size:
            raise Parse(
                f"the mask {self.name!r} leaves layer {empty[0]} without any expert",
                code="mask_empty_experts",
                section="masks",
                expected="at least 1 expert",
                found=0,
            )

    def __repr__(self) -> str:
        return f"Mask({self.name!r}, {self.active_layers} of {self.gates.size} layers)"


def new_mask(
    arch: Arch,
    info: MaskInfo,
    *,
    ffn: Mapping[int, Bits] | None = None,
    heads: Mapping[int, Bits] | None = None,
    gates: Bits | None = None,
    experts: Mapping[int, Bits] | None = None,
) -> Mask:
    """A mask from the rows that restrict something: ``ffn`` by visit, ``heads`` and ``experts`` by layer.

    A row that is missing is all ones; no ``experts`` means no expert area. Raises UsageError.mask_shape.
    """
    geometry = MaskGeometry.of(arch)
    if experts is not None and geometry.experts is None:
        raise UsageError("a model without arch.moe has no experts to mask", code="mask_shape")
    open_gates = np.ones(geometry.layers, np.bool_)
    rows = _rows(ffn, geometry.visits, geometry.ffn, "ffn")
    return Mask(
        info=info,
        ffn=_frozen(rows.reshape(geometry.loops, geometry.layers, geometry.ffn)),
        heads=_frozen(_rows(heads, geometry.layers, geometry.heads, "heads")),
        gates=_frozen(_fitting(open_gates if gates is None else gates, (geometry.layers,), "gates").copy()),
        experts=None if experts is None else _frozen(_rows(experts, geometry.layers, geometry.experts or 0, "experts")),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MaskSet(Mapping[str, Mask]):
    """The masks of a file by name, in its order. The bits of a mask are decoded when it is asked for.

    ``default_task`` names the mask that runs when no other is chosen; when none has that name, none runs.
    """

    default_task: str
    infos: Mapping[str, MaskInfo]
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    _decoded: dict[str, Mask] = field(default_factory=dict)
    _stored: _Stored | None = None

    @classmethod
    def of(cls, masks: Iterable[Mask], default_task: str) -> MaskSet:
        """A set to be written. Raises UsageError.mask_name for two masks of one name."""
        made: dict[str, Mask] = {}
        for mask in masks:
            if mask.name in made:
                raise UsageError("two masks have the same name", code="mask_name", found=mask.name)
            made[mask.name] = mask
        return cls(default_task, MappingProxyType({name: mask.info for name, mask in made.items()}), _decoded=made)

    @property
    def default(self) -> Mask | None:
        """The mask called ``default_task``, None when there is none."""
        return self.get(self.default_task)

    def __getitem__(self, name: str) -> Mask:
        if name not in self._decoded:
            if self._stored is None:
                raise KeyError(name)
            self._decoded[name] = self._stored.decode(name)
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def tails(self) -> Iterator[Parse]:
        """Parse.mask_tail for every area of a mask in the file with bits beyond its dimension; reading drops them."""
        if self._stored is not None:
            for name in self.infos:
                yield from self._stored.tails(name)

    def __repr__(self) -> str:
        return f"MaskSet({', '.join(self.infos)}; default {self.default_task!r})"


@dataclass(frozen=True, slots=True)
class _Stored:
    """Masks in the bytes of a section."""

    section: memoryview
    offset: int
    geometry: MaskGeometry
    places: Mapping[str, MaskPlace]

    def decode(self, name: str) -> Mask:
        place, geometry = self.places[name], self.geometry
        parts = [unpack_rows(data, rows, bits) for _, data, rows, bits in self._areas(place)]
        passes = geometry.loops if place.per_visit else 1
        return Mask(
            info=place.info,
            ffn=_frozen(parts[0].reshape(passes, geometry.layers, geometry.ffn)),
            heads=parts[1],
            gates=_frozen(parts[2].reshape(geometry.layers)),
            experts=parts[3] if place.info.has_expert_fields else None,
        )

    def tails(self, name: str) -> Iterator[Parse]:
        place = self.places[name]
        at = self.offset + place.offset
        for area, (offset, data, rows, bits) in zip(AREAS, self._areas(place), strict=False):
            row = tail_row(data, rows, bits)
            if row is not None:
                yield Parse(
                    f"the mask {name!r} has bits beyond the {area} dimension",
                    code="mask_tail",
                    section="masks",
                    offset=at + offset + (row + 1) * row_nbytes(bits) - 1,
                    expected=f"{bits} bits, the rest zero",
                    found=f"more in row {row}",
                )

    def _areas(self, place: MaskPlace) -> Iterator[tuple[int, memoryview, int, int]]:
        """(offset in the mask, bytes, rows, bits) of each area."""
        rows = self.geometry.visits if place.per_visit else self.geometry.layers
        at = 0
        for count, bits in self.geometry.areas(rows, place.info.has_expert_fields):
            nbytes = count * row_nbytes(bits)
            start = place.offset + at
            yield at, self.section[start : start + nbytes], count, bits
            at += nbytes


def decode_masks(section: memoryview, meta: MaskMeta, offset: int) -> MaskSet:
    """The masks of ``section``, which lies at ``offset`` of the file and has been checked as ``meta``."""
    places = MappingProxyType({place.info.name: place for place in meta.masks})
    infos = MappingProxyType({name: place.info for name, place in places.items()})
    return MaskSet(meta.default_task, infos, meta.extra, _stored=_Stored(section, offset, meta.geometry, places))


def encode_masks(masks: MaskSet, arch: Arch) -> bytes:
    """The section that reads as ``masks``: counts, compact meta, bits at multiples of 8 without gaps (SPEC 5).

    FFN rows of a looped model are written for every visit. Raises UsageError.mask_shape for a mask that does not fit
    ``arch``, and what ``parse_mask_meta`` raises for one that could not be read again.
    """
    geometry = MaskGeometry.of(arch)
    blobs = [_encode_bits(mask, geometry) for mask in masks.values()]
    sizes = [len(blob) for blob in blobs]
    start = 0
    while True:  # The offsets are part of the JSON whose length moves them; they only grow, so this ends.
        meta = _encode_meta(masks, _offsets(start, sizes), sizes)
        needed = _aligned(COUNTS_NBYTES + len(meta))
        if needed <= start:
            break
        start = needed
    section = bytearray(struct.pack("<II", len(blobs), len(meta)) + meta)
    for at, blob in zip(_offsets(start, sizes), blobs, strict=True):
        section += bytes(at - len(section)) + blob
    parse_mask_meta(bytes(section), len(section), arch, 0)
    return bytes(section)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN) * ALIGN


def _offsets(start: int, sizes: Iterable[int]) -> list[int]:
    offsets = []
    for size in sizes:
        offsets.append(start)
        start = _aligned(start + size)
    return offsets


def _encode_meta(masks: MaskSet, offsets: Iterable[int], sizes: Iterable[int]) -> bytes:
    entries = [
        _meta_entry(mask) | {"blob_off": offset, "blob_len": size}
        for mask, offset, size in zip(masks.values(), offsets, sizes, strict=True)
    ]
    return dump_json({"default_task": masks.default_task, "masks": entries, **thaw(masks.extra)})


def _meta_entry(mask: Mask) -> dict[str, Any]:
    info = mask.info
    entry: dict[str, Any] = {name: getattr(info, name) for name in _ORDER}
    # As an f32 prints, which is what readers keep.
    entry["sparsity"] = float(str(np.float32(info.sparsity)))
    entry["quality"] = None if info.quality is None else _quality(info.quality)
    flags = {"has_hot_pack": info.has_hot_pack, "has_expert_fields": mask.experts is not None}
    return {**entry, **flags, **thaw(info.extra)}


def _quality(quality: Quality) -> dict[str, Any]:
    stated = {item.name: getattr(quality, item.name) for item in fields(Quality) if item.name != "extra"}
    return {**{name: value for name, value in stated.items() if value is not None}, **thaw(quality.extra)}


def _encode_bits(mask: Mask, geometry: MaskGeometry) -> bytes:
    passes = mask.ffn.shape[0] if mask.ffn.ndim == 3 else 0
    per_visit = 1 if passes == 1 else geometry.loops
    ffn = _fitting(mask.ffn, (per_visit, geometry.layers, geometry.ffn), "ffn").reshape(-1, geometry.ffn)
    bits = pack_rows(ffn) * (geometry.loops // per_visit)
    bits += pack_rows(_fitting(mask.heads, (geometry.layers, geometry.heads), "heads"))
    bits += pack_rows(_fitting(mask.gates, (geometry.layers,), "gates").reshape(1, -1))
    if mask.experts is not None:
        bits += pack_rows(_fitting(mask.experts, (geometry.layers, geometry.experts or 0), "experts"))
    return bits


def _rows(given: Mapping[int, Bits] | None, rows: int, bits: int, area: str) -> Bits:
    values = np.ones((rows, bits), np.bool_)
    for i, row in (given or {}).items():
        if not 0 <= i < rows:
            raise UsageError(f"no such {area} row", code="mask_shape", expected=f"0 to {rows - 1}", found=i)
        values[i] = _fitting(row, (bits,), area)
    return values


def _fitting(values: Bits, shape: tuple[int, ...], area: str) -> Bits:
    array = np.asarray(values)
    if array.shape != shape or array.dtype != np.bool_:
        expected, found = f"bool {list(shape)}", f"{array.dtype} {list(array.shape)}"
        raise UsageError(f"the {area} of the mask do not fit", code="mask_shape", expected=expected, found=found)
    return array


def _frozen(values: Bits) -> Bits:
    values.flags.writeable = False
    return values
