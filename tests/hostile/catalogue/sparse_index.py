"""G: the sparse index (SPEC 7). It is read and shown, never used to run."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from hostile.damage import U32, envelope
from hostile.row import Case, Damage, Row

GROUPS = (0, 1, 2)  # of 96 neurons
HEADS = (0, 1, 2, 3)


def entry(task: int = 0, layer: int = 0, groups: Sequence[int] = GROUPS, heads: Sequence[int] = HEADS) -> bytes:
    data = struct.pack("<4I", task, layer, len(groups), len(heads))
    data += struct.pack(f"<{len(groups)}H", *groups) + bytes(heads)
    return data + bytes(-len(data) % 4)


def index(*entries: bytes, count: int | None = None) -> Damage:
    data = struct.pack("<II", len(entries) if count is None else count, 0) + b"".join(entries)
    return lambda cmf: replace(cmf, index=data, data=bytearray()).build()


def padded(byte: bytes) -> bytes:
    """An entry whose padding is not zero."""
    made = entry(heads=(0, 1, 2))
    return made[:-1] + byte


ROWS = (
    Row(
        "G1",
        "index: entries beyond its end",
        [
            *(envelope(index_len=n) for n in (4, 7)),
            index(entry(), count=U32),
            index(entry(), count=2),
            index(entry()[:12]),
            index(entry(), entry()[:-4]),
        ],
        expected="O Bounds.index",
        needs="sparse_index",
    ),
    Row(
        "G2",
        "index: counts that wrap 32 bits",
        [
            index(struct.pack("<4I", 0, 0, 0x80000000, 0) + bytes(64)),
            index(struct.pack("<4I", 0, 0, U32, U32) + bytes(64)),
        ],
        expected="O Bounds.index",
        needs="sparse_index",
    ),
    Row(
        "G3",
        "index: what its entries say",
        [
            index(entry(groups=(0, 1, 3))),
            index(entry(heads=(0, 4))),
            index(entry(groups=(1, 0, 2))),
            index(entry(heads=(1, 1))),
            index(entry(), entry()),
            index(entry(layer=2)),
            index(padded(b"\x01")),
        ],
        expected=("O ok", "V Parse.index"),
        needs="sparse_index",
    ),
    Row(
        "G4",
        "index: against the bits of the mask",
        [
            index(entry(task=1, groups=(1, 2))),
            index(entry(heads=(0, 1))),
            Case(index(entry(task=0), entry(task=1)), expected=("O ok", "V ok", "V strict ok")),
        ],
        expected=("O ok", "V warning Parse.index_masks"),
        needs="sparse_index",
    ),
)
