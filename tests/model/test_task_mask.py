"""Files with a masks section: an open or unnamed default runs, a restricting one is refused."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, cast

import pytest

from builders.tiny import Tiny, arch_of
from cortiq.container import Arch, File
from cortiq.container.arch import read_arch
from cortiq.errors import CortiqError, UnsupportedArch
from cortiq.model.task_mask import check_default_mask

TINY = Tiny(width=36, vocab=64)
# Two layers: FFN rows of 36 bits (a ragged tail), head rows of 4, two gates.
OPEN = (b"\xff\xff\xff\xff\x0f") * 2 + b"\x0f" * 2 + b"\x03"


def masks(blob: bytes, **meta: Any) -> bytes:
    one = {"task_id": 0, "name": "code", "sparsity": 0.0, "quality": None, "priority": "Normal", "blob_len": len(blob)}
    whole = {"default_task": "code", "masks": [{**one, "blob_off": 512, **meta.pop("mask", {})}], **meta}
    text = json.dumps(whole).encode()
    return (struct.pack("<II", 1, len(text)) + text).ljust(512, b"\0") + blob


@dataclass(frozen=True)
class Stub:
    """What the check reads of a file."""

    arch: Arch
    masks: bytes | None

    def section(self, name: str) -> memoryview | None:
        assert name == "masks"
        return None if self.masks is None else memoryview(self.masks)


def check(section: bytes | None) -> None:
    check_default_mask(cast(File, Stub(read_arch(arch_of(TINY), 0), section)))


def test_an_open_mask_and_an_unnamed_one_change_nothing() -> None:
    check(None)
    check(masks(OPEN))
    check(masks(bytes(len(OPEN)), default_task="general"))


@pytest.mark.parametrize("at", [0, 4, 10, 12])
def test_one_closed_bit_is_refused_by_the_name_of_the_task(at: int) -> None:
    blob = bytearray(OPEN)
    blob[at] &= 0xFE
    with pytest.raises(UnsupportedArch) as caught:
        check(masks(bytes(blob)))
    assert (caught.value.kind, caught.value.found) == ("UnsupportedArch.mask", "code")


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        (b"\1\0\0\0", "Bounds.masks"),
        (struct.pack("<II", 1, 100), "Bounds.masks"),
        (struct.pack("<II", 1, 2) + b"[]", "Parse.mask_meta"),
        (struct.pack("<II", 1, 2) + b"{}", "Parse.mask_meta"),
        (struct.pack("<II", 1, 2) + b"{,", "Parse.json"),
        (masks(OPEN, mask={"blob_off": 10**9}), "Bounds.masks"),
        (masks(OPEN, mask={"blob_off": "0"}), "Parse.mask_meta"),
        (masks(OPEN, mask={"has_expert_fields": True}), "Parse.mask_meta"),
    ],
)
def test_a_broken_section(section: bytes, kind: str) -> None:
    with pytest.raises(CortiqError) as caught:
        check(section)
    assert caught.value.kind == kind
