"""Structure-aware damage to a small CMF file: a field, a token or some bytes. Hashes are made right again."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from builders.cmf import ENVELOPE, RECORD, Cmf

BOUNDARIES = (0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (*BOUNDARIES, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 64, 2**64 - 1)
TOKENS = (b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b'"', b"\\u0000", b"\xff", b"[[", b"1.5", b"true", b",", b"0")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, 1e39, 2**31, 2**53 + 1, 2**64, "", "x", [], [1], ["x"], {}, {"no": 1, "count": 1}, ...,
)  # fmt: skip
FIELDS = ("format", "version", "quant_type", "tokenizer_config", "section_hashes", "shard", "skills", "provenance")
ARCH_FIELDS = (
    "num_loops", "moe", "mtp", "mla", "yarn", "linear_core", "sliding_window", "attention_heads_per_layer",
    "rope_freq_factors", "hidden_act", "final_logit_softcapping", "global_head_dim", "unknown_key",
)  # fmt: skip


def value(rng: random.Random, code: str, old: int) -> int:
    """Something near the old value or at a boundary, cut to the field's width."""
    choice = rng.choice((*WIDE, old + rng.choice((-64, -1, 1, 64)), rng.getrandbits(64)))
    return choice % 2 ** (8 * struct.calcsize(code))


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


def damage_field(cmf: Cmf, rng: random.Random) -> None:
    """A key of the header or of ``arch`` gets another value, or goes (``...``)."""
    name, changed = rng.choice((*FIELDS, *cmf.header["arch"], *ARCH_FIELDS)), rng.choice(VALUES)
    made = cmf.with_header(**{name: changed}) if name in FIELDS else cmf.with_arch(**{name: changed})
    cmf.header, cmf.data = made.header, made.data


def damage_bytes(cmf: Cmf, rng: random.Random) -> None:
    section = rng.choice(("dir", "data", "masks", "vocab", "index"))
    start, length = cmf.get(f"{section}_off"), cmf.get(f"{section}_len")
    at = start + rng.randrange(length)
    cmf.put(at, rng.randbytes(min(rng.randrange(1, 17), start + length - at)))


def damage_masks(cmf: Cmf, rng: random.Random) -> None:
    """Counts or meta of the masks section: a word of the head, or a token somewhere in the JSON."""
    start, (_, meta_len) = cmf.get("masks_off"), struct.unpack_from("<II", cmf.data, cmf.get("masks_off"))
    if rng.random() < 0.2:
        at = start + rng.choice((0, 4))
        struct.pack_into("<I", cmf.data, at, value(rng, "<I", struct.unpack_from("<I", cmf.data, at)[0]))
    else:
        token = rng.choice((*TOKENS, b"1", b"8", b"9", b"false"))
        cmf.put(start + 8 + rng.randrange(meta_len - len(token)), token)


def damage_skills(cmf: Cmf, rng: random.Random) -> None:
    """A registry of two skills: no array, or one key of a record is something else."""
    skills: list[Any] = [{"id": "a", "name": "A", "layers": [0], "task": None}, {"id": "b"}]
    if rng.random() < 0.2:
        made = cmf.with_header(skills=rng.choice((skills[0], [*skills, None], [*skills, []], 1, "x")))
    else:
        name = rng.choice(("id", "name", "layers", "base_dir_hash", "task", "other"))
        changed = rng.choice((*VALUES[:-1], "a", "a.b", "a/b", "0x1", "12", "F" * 16, "1" * 17))
        skills[rng.randrange(2)][name] = changed
        made = cmf.with_header(skills=skills)
    cmf.header, cmf.data = made.header, made.data


Damage = Callable[[Cmf, random.Random], None]
DAMAGES: tuple[Damage, ...] = (damage_envelope, damage_record, damage_header, damage_field, damage_bytes)


def mutants(base: Callable[[], Cmf], damage: Damage, count: int) -> Iterator[Cmf]:
    """``count`` files with one damage each, the same ones every time. Only damage to the envelope may break a hash."""
    rng = random.Random(damage.__name__)
    for _ in range(count):
        cmf = base()
        damage(cmf, rng)
        yield cmf if damage is damage_envelope else cmf.rehash()
