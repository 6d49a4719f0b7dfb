"""Where a mask to be added comes from: a JSON file of rows, or another CMF file of the same shape (SPEC 5).

The JSON is what mask training writes and other converters read. Every key may be missing or null, which restricts
nothing; so does a row that is null:

    ffn_masks     [[weight : intermediate_size] : num_layers, or num_layers * num_loops]
    head_masks    [[weight : num_attention_heads] : num_layers]
    layer_gates   [weight : num_layers]
    expert_masks  [[weight : num_experts] : num_layers]
    metadata      {sparsity, description, quality, parent, priority}

A weight above 0.5 is active; true and false are 1 and 0. ``quality`` is an object with at least metric and value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cortiq.container import Mask, MaskInfo, MaskSet, new_mask, open_single
from cortiq.container.arch import Arch
from cortiq.container.mask_bits import Bits, MaskGeometry
from cortiq.container.mask_meta import PRIORITIES, quality
from cortiq.container.records import Place, choice, number, text
from cortiq.container.strict_json import parse_json
from cortiq.errors import Parse, SourceError, UsageError

_KEYS = ("ffn_masks", "head_masks", "layer_gates", "expert_masks", "metadata")
_OPEN_INFO = MaskInfo(task_id=0, name="", sparsity=0.0, priority="Normal")


class MaskSource(ABC):
    """A mask that can be read for a model. ``path`` is its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def read(self, arch: Arch, name: str) -> Mask:
        """The mask, called ``name``. Raises UsageError.mask_shape and SourceError.mask for one that does not fit."""


def mask_source(path: Path) -> MaskSource:
    """The source in ``path``: JSON, or a CMF file. Raises OSError."""
    with path.open("rb") as stream:
        start = stream.read(4)
    return _CmfMask(path) if start == b"CMF\x01" else _JsonMask(path)


class _CmfMask(MaskSource):
    """The mask of the same name in another file."""

    def read(self, arch: Arch, name: str) -> Mask:
        with open_single(self.path) as file:
            masks: MaskSet | None = file.masks
            if masks is None or name not in masks:
                known = "a file with masks" if masks is None else f"one of {', '.join(masks)}"
                raise UsageError(
                    "the file has no such mask", code="mask", path=str(self.path), expected=known, found=name
                )
            mask = masks[name]
        return replace(mask, info=replace(mask.info, parent=None))


class _JsonMask(MaskSource):
    def read(self, arch: Arch, name: str) -> Mask:
        try:
            document = parse_json(self.path.read_bytes(), section="mask", offset=0)
        except Parse as error:
            raise SourceError(f"not a mask: {error.message}", code="mask", path=str(self.path)) from error
        if not isinstance(document, Mapping):
            raise self._bad("a mask is an object", "an object", type(document).__name__)
        if unknown := sorted(set(document) - set(_KEYS)):
            raise self._bad("the file says what no mask has", f"keys of {', '.join(_KEYS)}", unknown[0])
        geometry = MaskGeometry.of(arch)
        rows = document.get("ffn_masks")
        visits = geometry.visits if isinstance(rows, list) and len(rows) == geometry.visits else geometry.layers
        ffn = self._rows(document, "ffn_masks", visits, geometry.ffn) or {}
        if visits != geometry.visits:  # the same neurons in every pass
            ffn = {visit: ffn[visit % visits] for visit in range(geometry.visits) if visit % visits in ffn}
        mask = new_mask(
            arch,
            self._info(document.get("metadata"), name),
            ffn=ffn,
            heads=self._rows(document, "head_masks", geometry.layers, geometry.heads),
            gates=self._row(document.get("layer_gates"), "layer_gates", geometry.layers),
            experts=self._rows(document, "expert_masks", geometry.layers, geometry.experts or 0),
        )
        stated = (document.get("metadata") or {}).get("sparsity")
        if stated is not None:
            return mask
        return replace(mask, info=replace(mask.info, sparsity=max(mask.inactive_shares().values())))

    def _info(self, metadata: Any, name: str) -> MaskInfo:
        """What the metadata says of the mask."""
        if not isinstance(metadata, Mapping | None):
            raise self._bad("metadata is an object", "an object", type(metadata).__name__)
        given = {key: value for key, value in (metadata or {}).items() if value is not None}
        rules = {
            "sparsity": number(0, 1),
            "description": text,
            "quality": quality,
            "parent": text,
            "priority": choice(*PRIORITIES),
        }
        try:
            known = {
                k: rule(given[k], Place("mask", f"metadata.{k}", 0, "mask")) for k, rule in rules.items() if k in given
            }
        except Parse as error:
            raise self._bad(error.message, error.expected, error.found) from error
        return replace(_OPEN_INFO, name=name, **known)

    def _rows(self, document: Mapping[str, Any], key: str, count: int, bits: int) -> dict[int, Bits] | None:
        """The rows that restrict something, by their number; None when the file has none of this kind."""
        rows = document.get(key)
        if rows is None:
            return None
        if not isinstance(rows, list) or len(rows) != count:
            found = f"{len(rows)} rows" if isinstance(rows, list) else type(rows).__name__
            raise self._bad(f"{key} does not fit the model", f"{count} rows", found)
        made = {i: self._row(row, f"{key}[{i}]", bits) for i, row in enumerate(rows)}
        return {i: row for i, row in made.items() if row is not None}

    def _row(self, row: Any, where: str, bits: int) -> Bits | None:
        if row is None:
            return None
        good = isinstance(row, list) and all(isinstance(value, int | float) for value in row)
        if not good or len(row) != bits:
            found = f"{len(row)} values" if good else "something else"
            raise self._bad(f"{where} does not fit the model", f"{bits} numbers", found)
        active: Bits = np.array([value > 0.5 for value in row], np.bool_)
        return active

    def _bad(self, message: str, expected: object, found: object) -> SourceError:
        return SourceError(message, code="mask", path=str(self.path), expected=expected, found=found)
