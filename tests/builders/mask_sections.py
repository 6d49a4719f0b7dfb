"""Masks sections byte by byte from SPEC 5, to be damaged by tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any


def info(name: str = "code", task_id: int = 0, **changes: Any) -> dict[str, Any]:
    """What the meta says of a mask, without the place of its bits; ``...`` leaves a key out."""
    entry = {"task_id": task_id, "name": name, "description": None, "sparsity": 0.5, "quality": None, "parent": None}
    entry |= {"priority": "Normal", "has_hot_pack": False, **changes}
    return {key: value for key, value in entry.items() if value is not ...}


def section(*masks: tuple[dict[str, Any], bytes], start: int = 1024, **meta: Any) -> bytes:
    """A section whose bits begin at ``start``, 8-aligned one after the other. What a mask says of its place wins."""
    entries, blobs, at = [], b"", start
    for entry, bits in masks:
        entries.append({"blob_off": at, "blob_len": len(bits), **entry})
        padded = bits + bytes(-len(bits) % 8)
        blobs, at = blobs + padded, at + len(padded)
    names = [entry["name"] for entry in entries] or [""]
    return raw({"default_task": names[0], "masks": entries, **meta}, blobs, start, len(masks))


def raw(meta: Any, blobs: bytes, start: int, count: int) -> bytes:
    """Counts, any meta, padding, bits."""
    text = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    head = struct.pack("<II", count, len(text)) + text
    return head.ljust(start, b"\0") + blobs if blobs else head


def ones(*areas: tuple[int, int]) -> bytes:
    """Rows of ones for (rows, bits) after (rows, bits), tail bits zero."""
    return b"".join(row([1] * bits) * rows for rows, bits in areas)


def row(bits: Sequence[int]) -> bytes:
    """Bits LSB first, padded to a byte."""
    values = bytearray(-(-len(bits) // 8))
    for i, bit in enumerate(bits):
        values[i // 8] |= bit << i % 8
    return bytes(values)
