"""E: the masks section (SPEC 5, 5.1)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hostile.damage import U32, arch, envelope
from hostile.row import HEADER_HASH, Case, Damage, Row

AT = 1024  # of the first mask's bits
ON = b"\xff" * 24 + b"\x0f" * 2 + b"\x03"  # FFN rows of 96, head rows of 4, gates of 2 layers
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}
Meta = dict[str, Any]


def mask(i: int, name: str, at: int = AT) -> Meta:
    facts = {"task_id": i, "name": name, "description": None, "sparsity": 0.0, "quality": None, "parent": None}
    return {**facts, "priority": "Normal", "has_hot_pack": False, "blob_off": at + 32 * i, "blob_len": len(ON)}


def section(raw: bytes, bits: tuple[bytes, ...] = (ON, ON), *, count: int = 2, nbytes: int | None = None, at: int = AT):
    """A masks section with this meta; ``nbytes`` is what it says of the meta's size."""
    head = struct.pack("<II", count, len(raw) if nbytes is None else nbytes) + raw
    data = bytearray(at) + b"".join(blob.ljust(32, b"\0") for blob in bits)
    data[: len(head)] = head
    return lambda cmf: replace(cmf, masks=bytes(data), data=bytearray()).build()


def meta(edit: Callable[[Meta], object], *bits: bytes, **more: Any) -> Damage:
    """A masks section whose meta went through ``edit``."""
    at = more.get("at", AT)
    made = {"default_task": "general", "masks": [mask(0, "general", at), mask(1, "code", at)]}
    edit(made)
    return section(json.dumps(made).encode(), bits or (ON, ON), **more)


def first(*bits: bytes, **changes: Any) -> Damage:
    """The first mask's meta with some keys replaced (``...`` removes one)."""

    def edit(made: Meta) -> None:
        made["masks"][0] = {k: v for k, v in {**made["masks"][0], **changes}.items() if v is not ...}

    return meta(edit, *bits)


def text(change: Callable[[bytes], bytes]) -> Damage:
    """The meta's bytes changed."""
    made = {"default_task": "general", "masks": [mask(0, "general"), mask(1, "code")]}
    return section(change(json.dumps(made).encode()))


def parents(*names: str | None) -> Damage:
    def edit(made: Meta) -> None:
        for entry, name in zip(made["masks"], names, strict=True):
            entry["parent"] = name

    return meta(edit)


def with_experts(blob_len: int, present: bool) -> Damage:
    """The first mask with or without expert rows, in a model of four experts."""
    made = first(ON + b"\x0f\x0f", ON, has_expert_fields=present, blob_len=blob_len)
    return lambda cmf: made(cmf.with_arch(moe=MOE))


def tails(bits: bytes, **changes: Any) -> Damage:
    """A mask of these bits, in a model of an odd number of neurons."""

    def edit(made: Meta) -> None:
        made["masks"] = [{**mask(0, "general"), "blob_len": len(bits), **changes}]

    made = meta(edit, bits, count=1)
    return lambda cmf: made(replace(cmf, index=b"").with_arch(intermediate_size=17, moe=MOE))


ROW17 = b"\xff\xff\x01"
EMPTY = {
    "an FFN row": bytes(12) + ON[12:],
    "all heads": ON[:24] + bytes(2) + ON[26:],
    "gates": ON[:26] + b"\0",
}

ROWS = (
    Row(
        "E1",
        "masks: counts",
        [
            Case(envelope(masks_len=4), expected="O Bounds.mask_count"),
            *(meta(lambda made: None, count=count) for count in (0, 1, 3, U32)),
        ],
        expected="O Parse.mask_count",
        needs="masks",
    ),
    Row(
        "E2",
        "masks: a meta that does not fit",
        [meta(lambda made: None, nbytes=nbytes) for nbytes in (U32, AT + 64 - 7)],
        expected="O Bounds.mask_meta",
        needs="masks",
    ),
    Row(
        "E3",
        "masks: the meta as JSON",
        [
            Case(text(lambda raw: raw.replace(b"code", b"c\xffde")), expected="O Parse.utf8"),
            Case(text(lambda raw: b"\xef\xbb\xbf" + raw), expected="O Parse.utf8"),
            Case(text(lambda raw: b'{"x": ' + b"[" * 64 + b"]" * 64 + b"," + raw[1:]), expected="O Parse.depth"),
            Case(text(lambda raw: b'{"masks": [], ' + raw[1:]), expected="O Parse.dup_key"),
            Case(text(lambda raw: b'{"x": NaN, ' + raw[1:]), expected="O Parse.nonfinite"),
            Case(
                text(lambda raw: raw.replace(b'"task_id": 0', b'"task_id": ' + b"1" * 60)), expected="O Parse.int_range"
            ),
            Case(text(lambda raw: raw + b"{}"), expected="O Parse.json"),
            Case(text(lambda raw: raw[:-1]), expected="O Parse.json"),
            *(section(raw) for raw in (b"[]", b"null", b"42", b"{}")),
        ],
        expected="O Parse.mask_meta",
        needs="masks",
    ),
    Row(
        "E4",
        "masks: bits outside the section's room for them",
        [first(blob_off=offset) for offset in (AT + 4, 8, 0, -8, 2**64 - 8, AT + 64, AT + 48)],
        expected="O Bounds.mask_blob",
        needs="masks",
    ),
    Row(
        "E5",
        "masks: bits of another size than the architecture gives",
        [
            *(first(blob_len=n) for n in (0, 26, 28, 2**63)),
            with_experts(27, present=True),
            with_experts(29, present=False),
            Case(with_experts(29, present=True), expected=("O ok", "V ok")),
        ],
        expected="O Bounds.mask_len",
        needs="masks",
    ),
    Row(
        "E6",
        "masks: bits of two masks overlap",
        [first(blob_off=AT + 8), first(blob_off=AT + 32)],
        expected="O Bounds.mask_overlap",
        needs="masks",
    ),
    Row(
        "E7",
        "masks: bits beyond a dimension",
        [
            tails(b"\xff\xff\x03" + ROW17 + b"\x0f\x0f\x03"),
            tails(ROW17 * 2 + b"\x0f\x1f\x03"),
            tails(ROW17 * 2 + b"\x0f\x0f\x07"),
            tails(ROW17 * 2 + b"\x0f\x0f\x03\x1f\x0f", has_expert_fields=True),
            Case(tails(ROW17 * 2 + b"\x0f\x0f\x03\x0f\x0f", has_expert_fields=True), expected=("O ok", "V ok")),
        ],
        expected=("O ok", "V Parse.mask_tail"),
        needs="masks",
    ),
    Row(
        "E8",
        "masks: rows without a bit are well formed, but for experts",
        [
            *(meta(lambda made: None, bits, ON) for bits in EMPTY.values()),
            Case(
                tails(ROW17 * 2 + b"\x0f\x0f\x03\x0f\x00", has_expert_fields=True),
                expected=("O ok", "V Parse.mask_empty_experts"),
            ),
        ],
        expected=("O ok", "V ok"),
        needs="masks",
        later="what running with them computes",
    ),
    Row(
        "E9",
        "masks: what the meta says",
        [
            *(first(quality=quality) for quality in (1.0, "good", [], {"metric": "ppl"})),
            *(first(**{name: ...}) for name in ("name", "task_id", "blob_off", "blob_len")),
            first(task_id=1),
            first(name="code"),
            parents("code", "general"),
            parents("general", None),
            meta(lambda made: made.update(default_task=3)),
            Case(meta(lambda made: made.update(default_task="nothing")), expected=("O ok", "V ok")),
        ],
        expected="O Parse.mask_meta",
        needs="masks",
    ),
    Row(
        "E10",
        "BINARY_MASKS against the section",
        [
            envelope(features=0b01),
            envelope(masks_off=0, masks_len=0),
        ],
        expected=("O ok", "V warning Parse.feature_bits", "V strict Parse"),
        raw=("O ok", "V warning Parse.feature_bits", "V strict Parse"),
    ),
    Row(
        "E11",
        "numbers that overflow the size of a mask",
        [arch(num_layers=2**40)],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "E12",
        "masks: names are opaque",
        [first(name=name) for name in ("../../x", "\x1b[31m", "\u202e")]
        + [meta(lambda made: made["masks"][0].update(name="x" * 10**6), at=2**21)],
        expected=("O ok", "V ok"),
        needs="masks",
    ),
)
