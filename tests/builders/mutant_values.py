"""What damages put in place of what was there."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

from builders.cmf import Q1S, Q1T, Q2TP, Q4TP, VBIT, VBIT_RO

BOUNDARIES = (0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (*BOUNDARIES, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 64, 2**64 - 1)
TOKENS = (b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b'"', b"\\u0000", b"\xff", b"[[", b"1.5", b"true", b",", b"0")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, 1e39, 2**31, 2**53 + 1, 2**64, "", "x", [], [1], ["x"], {}, {"no": 1, "count": 1}, ...,
)  # fmt: skip
SKILL_VALUES = (*VALUES[:-1], "a", "a.b", "a/b", "0x1", "12", "F" * 16, "1" * 17)
FIELDS = (
    "format", "version", "quant_type", "tokenizer_config", "section_hashes", "shard", "skills", "provenance", "digests",
)  # fmt: skip
ARCH_FIELDS = (
    "num_loops", "moe", "mtp", "mla", "yarn", "linear_core", "sliding_window", "attention_heads_per_layer",
    "rope_freq_factors", "hidden_act", "final_logit_softcapping", "global_head_dim", "unknown_key",
)  # fmt: skip
NAMES = (b"\0", b"\n", b"\xff", b"\xc3\xa9", b"skill.", b"model.norm.weight", b"model.layers.0.", b"/../", b"a")

HeaderEdit = Callable[[str, random.Random], bytes]


def integer(rng: random.Random, code: str, old: int) -> int:
    """Something near the old value or at a boundary, cut to the field's width."""
    choice = rng.choice((*WIDE, old + rng.choice((-64, -1, 1, 64)), rng.getrandbits(64), old ^ 1 << rng.randrange(64)))
    return choice % 2 ** (8 * struct.calcsize(code))


def told_by_content(dtype: int, shape: Sequence[int]) -> range:
    """Where a payload says how long its parts are, or what its scales are; anywhere in dtypes that say neither."""
    if len(shape) != 2:
        return range(16)
    rows, groups = shape[0], shape[0] * shape[-1] // 32
    return {
        VBIT: range(rows),
        VBIT_RO: range(rows + 2 * groups, rows + 2 * groups + 4 * (rows + 1)),
        Q1S: range(6 * groups, 6 * groups + 8),
        Q1T: range(9 * groups, 9 * groups + 4 * (rows + 1) + 8),
        Q4TP: range(16 * groups, 16 * groups + 4 * rows),
        Q2TP: range(8 * groups, 8 * groups + 4 * rows),
    }.get(dtype, range(16))


def _repeated(raw: str, rng: random.Random) -> bytes:
    key = rng.choice(("format", "arch", "quant_type", "skills"))
    return raw.replace('"format"', f'"{key}": {rng.choice(("1", "null", "{}"))}, "format"', 1).encode()


def _nested(raw: str, rng: random.Random) -> bytes:
    depth = rng.choice((10, 62, 63, 64, 65, 2000))
    brackets = rng.choice(("[]", '{"a":}'))
    return f'{raw[:-1]}, "deep": {brackets[:-1] * depth}0{brackets[-1] * depth}}}'.encode()


def _number(raw: str, rng: random.Random) -> bytes:
    number = rng.choice(("1e400", "-0", "NaN", "Infinity", "9" * 30, "9" * 5000, "0x10", "01", "1.", "1e5", "-1e-400"))
    key = rng.choice(("extra", "version"))
    return (
        f'{raw[:-1]}, "{key}": {number}}}'.encode()
        if key == "extra"
        else raw.replace('"version": 2', f'"version": {number}').encode()
    )


def _encoded(raw: str, rng: random.Random) -> bytes:
    return raw.encode(rng.choice(("utf-16", "utf-8-sig", "utf-32", "utf-16-le")))


def _text(raw: str, rng: random.Random) -> bytes:
    text = rng.choice(("\\ud800", "\\u0000", "\\x", "\\ud83d\\ude00", "\u2028", "\t", "\\", "a" * 3000))
    return f'{raw[:-1]}, "text": "{text}"}}'.encode()


def _framed(raw: str, rng: random.Random) -> bytes:
    before, after = rng.choice((" ", "\n\t", "", "[", "//", "\0")), rng.choice((" ", "}", "", "]", "\0", "x", ","))
    return f"{before}{raw}{after}".encode()


HEADER_EDITS: tuple[HeaderEdit, ...] = (_repeated, _nested, _number, _encoded, _text, _framed)
