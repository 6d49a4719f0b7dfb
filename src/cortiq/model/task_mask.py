"""Which task mask a file asks for (SPEC 5). Masks are not applied yet: a file whose default mask restricts anything is
refused, one that is fully open or names no mask runs as it is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from cortiq.container.strict_json import parse_json
from cortiq.errors import Bounds, Parse, UnsupportedArch

if TYPE_CHECKING:
    from cortiq.container import Arch, File


def check_default_mask(file: File) -> None:
    """Returns when nothing is to be masked.

    Raises UnsupportedArch (``mask``) naming the task whose mask would restrict the model, Parse and Bounds for a
    section that cannot be read.
    """
    section = file.section("masks")
    if section is None:
        return
    meta = _meta(section)
    task = meta.get("default_task")
    masks = meta.get("masks")
    if not isinstance(task, str) or not isinstance(masks, list):
        raise Parse("masks need default_task and masks", code="mask_meta", section="masks")
    chosen = next((mask for mask in masks if isinstance(mask, dict) and mask.get("name") == task), None)
    if chosen is None:
        return
    blob = _blob(section, chosen)
    experts = bool(chosen.get("has_expert_fields", False))
    if bytes(blob) != _open_blob(file.arch, experts):
        raise UnsupportedArch(
            "a mask that restricts the model is not supported", code="mask", section="masks", found=task
        )


def _meta(section: memoryview) -> dict[str, Any]:
    if len(section) < 8:
        raise Bounds("too short for its counts", code="masks", section="masks", expected=8, found=len(section))
    _, nbytes = struct.unpack_from("<II", section)
    if nbytes > len(section) - 8:
        raise Bounds("the meta does not fit", code="masks", section="masks", expected=len(section) - 8, found=nbytes)
    meta = parse_json(bytes(section[8 : 8 + nbytes]), section="masks", offset=8)
    if not isinstance(meta, dict):
        raise Parse("the meta must be an object", code="mask_meta", section="masks")
    return meta


def _blob(section: memoryview, mask: dict[str, Any]) -> memoryview:
    offset, nbytes = mask.get("blob_off"), mask.get("blob_len")
    if type(offset) is not int or type(nbytes) is not int:
        raise Parse("a mask needs blob_off and blob_len", code="mask_meta", section="masks")
    if offset < 0 or nbytes < 0 or offset + nbytes > len(section):
        raise Bounds("a mask does not lie in the section", code="masks", section="masks", found=f"{offset}+{nbytes}")
    return section[offset : offset + nbytes]


def _open_blob(arch: Arch, experts: bool) -> bytes:
    """The blob of a mask that leaves everything active."""

    def ones(count: int) -> bytes:
        return np.packbits(np.ones(count, np.uint8), bitorder="little").tobytes()

    blob = ones(arch.intermediate_size) * arch.num_layers + ones(arch.num_attention_heads) * arch.num_layers
    blob += ones(arch.num_layers)
    if experts:
        if arch.moe is None:
            raise Parse("expert fields without arch.moe", code="mask_meta", section="masks")
        blob += ones(arch.moe.num_experts) * arch.num_layers
    return blob
