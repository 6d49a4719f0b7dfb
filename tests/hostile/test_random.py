"""Random damage: a file opens and verifies without a crash, or gives one error of the tree. Hashes are kept right."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.cmf import ENVELOPE, RECORD, Cmf, two_layers
from cortiq.container import open_single, verify
from cortiq.errors import CortiqError, FormatError, HashMismatch

Damage = Callable[[Cmf, random.Random], None]
BOUNDARIES = (0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (*BOUNDARIES, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 64, 2**64 - 1)
TOKENS = (b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b'"', b"\\u0000", b"\xff", b"[[", b"1.5", b"true", b",", b"0")


def value(rng: random.Random, code: str, old: int) -> int:
    """Something near the old value or at a boundary, cut to the field's width."""
    choice = rng.choice((*WIDE, old + rng.choice((-64, -1, 1, 64)), rng.getrandbits(64)))
    return int(choice % 2 ** (8 * struct.calcsize(code)))


def damage_envelope(cmf: Cmf, rng: random.Random) -> None:
    name = rng.choice([name for name in ENVELOPE if name != "magic"])
    cmf.set(name, value(rng, ENVELOPE[name][1], cmf.get(name)))


def damage_record(cmf: Cmf, rng: random.Random) -> None:
    i, name = rng.randrange(len(cmf.tensors)), rng.choice(list(RECORD))
    if name == "shape":
        shape = list(cmf.get_record(i, "shape"))
        shape[rng.randrange(6)] = value(rng, "<I", 64)
        cmf.set_record(i, shape=tuple(shape))
    else:
        cmf.set_record(i, **{name: value(rng, RECORD[name][1], cmf.get_record(i, name))})


def damage_header(cmf: Cmf, rng: random.Random) -> None:
    start, length = cmf.get("header_off"), cmf.get("header_len")
    token = rng.choice(TOKENS)
    cmf.put(start + rng.randrange(length - len(token)), token)


def damage_bytes(cmf: Cmf, rng: random.Random) -> None:
    section = rng.choice(("dir", "data", "masks", "vocab", "index"))
    start, length = cmf.get(f"{section}_off"), cmf.get(f"{section}_len")
    at = start + rng.randrange(length)
    cmf.put(at, rng.randbytes(min(rng.randrange(1, 17), start + length - at)))


@pytest.mark.parametrize("damage", [damage_envelope, damage_record, damage_header, damage_bytes])
def test_one_error_of_the_tree_or_none(tmp_path: Path, damage: Damage) -> None:
    rng, path, kinds = random.Random(damage.__name__), tmp_path / "bad.cmf", set()
    for _ in range(200):
        cmf = two_layers()
        for _ in range(rng.choice((1, 1, 2))):
            damage(cmf, rng)
        if damage is not damage_envelope:
            cmf.rehash()
        try:
            with open_single(cmf.save(path)) as file:
                verify(file, threads=1)
                for name in file:
                    assert file[name].nbytes == len(file[name].raw)
                kinds.add("ok")
        except CortiqError as error:
            kinds.add(error.kind if isinstance(error, FormatError | HashMismatch) and error.code else "unexpected")
    assert "unexpected" not in kinds
    assert len(kinds) > (2 if damage is damage_bytes else 5)
