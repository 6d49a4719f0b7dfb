"""The sparse index (SPEC 7), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.cmf import ARCH, Cmf, two_layers
from cortiq.container import sparse_index
from cortiq.container.arch import read_arch
from cortiq.container.mask_meta import parse_mask_meta
from cortiq.container.masks import MaskSet, decode_masks
from cortiq.container.sparse_index import check_sparse_index, disagreements, parse_sparse_index
from cortiq.errors import Bounds, CortiqError, Limit

SECTIONS = Path(__file__).parents[1] / "data" / "container" / "sections"
GOLDEN: dict[str, Any] = json.loads((SECTIONS / "expected.json").read_text())


def entry(task: int, layer: int, groups: tuple[int, ...] = (0, 1, 2), heads: tuple[int, ...] = (0, 1, 2, 3)) -> bytes:
    data = struct.pack("<IIII", task, layer, len(groups), len(heads))
    data += struct.pack(f"<{len(groups)}H", *groups) + bytes(heads)
    return data + bytes(-len(data) % 4)


def index(*entries: bytes, reserved: int = 0) -> bytes:
    return struct.pack("<II", len(entries), reserved) + b"".join(entries)


def with_index(data: bytes) -> Cmf:
    return replace(two_layers(), index=data, data=bytearray()).build()


def problems(data: bytes) -> list[str]:
    found = check_sparse_index(parse_sparse_index(memoryview(data), 0), read_arch(ARCH, 0), None, 0)
    return [error.kind for error in found]


@pytest.mark.parametrize(
    ("name", "count"), [("masks-f16", 18), ("moe2-masked", 4), ("moe3-masked", 4), ("looped-baked", 4)]
)
def test_golden_is_what_the_masks_say(name: str, count: int) -> None:
    arch = read_arch(GOLDEN[name]["arch"], 0)
    section = (SECTIONS / f"{name}.masks").read_bytes()
    masks = decode_masks(memoryview(section), parse_mask_meta(section, len(section), arch, 0), 0)
    found = parse_sparse_index(memoryview((SECTIONS / f"{name}.index").read_bytes()), 0)
    assert len(found) == count
    assert list(check_sparse_index(found, arch, masks, 0)) == []
    assert list(disagreements(found, masks, 0)) == []


def test_an_entry(opened) -> None:
    file = opened(with_index(index(entry(0, 1, (0, 2), (3,)))))
    (found,) = file.sparse_index
    assert (found.task_id, found.layer, found.groups.tolist(), found.heads.tolist()) == (0, 1, [0, 2], [3])
    assert file.sparse_index is file.sparse_index


def test_absent(opened) -> None:
    assert opened(with_index(b"")).sparse_index is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack("<II", 0xFFFFFFFF, 0) + entry(0, 0),
        struct.pack("<II", 2, 0) + entry(0, 0),
        index(entry(0, 0))[:-8],
        struct.pack("<IIIIII", 1, 0, 0, 0, 0x80000000, 0),
        struct.pack("<IIIIII", 1, 0, 0, 0, 0, 0xFFFFFFFF),
    ],
)
def test_g1_g2_what_does_not_fit_is_refused_when_it_is_used(opened, data: bytes) -> None:
    file = opened(with_index(data))
    with pytest.raises(Bounds) as caught:
        _ = file.sparse_index
    assert (caught.value.code, caught.value.section) == ("index", "index")
    assert caught.value.offset is not None
    assert caught.value.expected is not None


@pytest.mark.parametrize(
    "data",
    [
        index(entry(0, 0, groups=(3,))),
        index(entry(0, 0, heads=(4,))),
        index(entry(0, 0, groups=(1, 0))),
        index(entry(0, 0, groups=(1, 1))),
        index(entry(0, 0, heads=(2, 1))),
        index(entry(0, 0), entry(0, 0)),
        index(entry(0, 2)),
        index(entry(0, 0, groups=(0,), heads=(0,))[:-1] + b"\1"),
        index(entry(0, 0), reserved=1),
        index(entry(0, 0)) + b"\0\0\0\0",
    ],
)
def test_g3_what_cannot_be_meant(data: bytes) -> None:
    assert problems(data) == ["Parse.index"]


def test_g2_more_entries_than_the_reader_accepts(monkeypatch) -> None:
    monkeypatch.setattr(sparse_index, "MAX_ENTRIES", 1)
    with pytest.raises(Limit) as caught:
        parse_sparse_index(memoryview(index(entry(0, 0), entry(0, 1))), 0)
    assert caught.value.code == "index"


@given(st.data())
def test_any_bytes_give_one_error_or_findings(data: st.DataObject) -> None:
    raw = bytearray((SECTIONS / "masks-f16.index").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        found = parse_sparse_index(memoryview(bytes(raw)), 0)
    except CortiqError:
        return
    list(check_sparse_index(found, read_arch(GOLDEN["masks-f16"]["arch"], 0), None, 0))


def test_g3_a_task_without_a_mask() -> None:
    found = parse_sparse_index(memoryview(index(entry(5, 0))), 0)
    assert [e.kind for e in check_sparse_index(found, read_arch(ARCH, 0), MaskSet.of([], ""), 0)] == ["Parse.index"]


def test_g3_the_last_entry_may_lack_its_padding() -> None:
    assert problems(index(entry(0, 0, groups=(0,), heads=(0,)))[:-1]) == []


def test_g4_against_the_masks(opened) -> None:
    """Eight neurons of the mask code are off, but no group of 32; other tasks and layers have no mask to contradict."""
    entries = (entry(0, 0), entry(1, 0, groups=(1, 2)), entry(1, 1), entry(9, 0), entry(1, 7))
    file = opened(with_index(index(*entries)))
    found = list(disagreements(file.sparse_index, file.masks, 100))
    assert [error.kind for error in found] == ["Parse.index_masks"]
    assert found[0].offset == 100 + 8 + len(entry(0, 0))
