"""Structure-aware damage to a small CMF file, the same for the same seed.

A ``Subject`` is a file whose fields have been found, and a copy of it that damages change; each damage is a function of
it and a random generator. ``mutants`` gives files with one kind of damage each, ``mutate`` files with up to four.
"""

from __future__ import annotations

import functools
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from builders.cmf import ENVELOPE, RECORD, Cmf
from builders.mutant_values import (
    ARCH_FIELDS,
    FIELDS,
    HEADER_EDITS,
    NAMES,
    SKILL_VALUES,
    TOKENS,
    VALUES,
    integer,
    told_by_content,
)
from builders.rehash import rehash

RECORD_NBYTES = 56
SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")
ENVELOPE_NBYTES = 128
REHASHED = 0.8


class Subject(Cmf):
    """A copy of a file under damage.

    ``header``, ``spans`` (offset and size of each section) and ``records`` are those of the undamaged file, and so is
    the place of ``record(i)``: no damage leads another one astray.
    """

    def __init__(self, original: bytes) -> None:
        self.spans, self.records, fields = _found(original)
        super().__init__(fields, [], data=bytearray(original))
        self.directory = self.spans["dir"][0]

    def record(self, i: int) -> int:
        return self.directory + 16 + RECORD_NBYTES * i

    def put_inside(self, at: int, content: bytes) -> None:
        """Overwrite bytes as far as the file goes."""
        self.data[at : at + len(content)] = content[: max(len(self.data) - at, 0)]

    def put_header(self, raw: bytes) -> None:
        """Another header, where the old one was if it fits, else behind the file."""
        start, length = self.spans["header"]
        if len(raw) <= length:
            self.put_inside(start, raw.ljust(length))
        else:
            self.set("header_off", len(self.data)).set("header_len", len(raw))
            self.data += raw


@functools.lru_cache(maxsize=64)
def _found(original: bytes) -> tuple[dict[str, tuple[int, int]], list[dict[str, Any]], dict[str, Any]]:
    """Sections, records and header of an undamaged file. Nobody changes them."""
    file = Cmf({}, [], data=bytearray(original))
    spans = {name: (file.get(f"{name}_off"), file.get(f"{name}_len")) for name in SECTIONS}
    count = struct.unpack_from("<Q", original, spans["dir"][0])[0]
    records = [{name: file.get_record(i, name) for name in RECORD} for i in range(count)]
    return spans, records, json.loads(file.section("header"))


Damage = Callable[[Subject, random.Random], None]


def damage_envelope(it: Subject, rng: random.Random) -> None:
    """A field gets a boundary value, that of another field, or the end of the file."""
    name = rng.choice(list(ENVELOPE)[1:])
    other = it.get(rng.choice(list(ENVELOPE)[1:]))
    old, code = it.get(name), ENVELOPE[name][1]
    size = len(it.data)
    near = (other, size, size - 1, size + 1, size - it.get("dir_off"))
    it.set(
        name, (rng.choice(near) if rng.random() < 0.3 else integer(rng, code, old)) % 2 ** (8 * struct.calcsize(code))
    )


def swap_envelope(it: Subject, rng: random.Random) -> None:
    first, second = rng.sample(list(ENVELOPE)[4:], 2)
    a, b = it.get(first), it.get(second)
    it.set(first, b).set(second, a)


def damage_record(it: Subject, rng: random.Random) -> None:
    i, name = rng.randrange(len(it.records)), rng.choice(list(RECORD))
    if name == "shape":
        shape = list(it.records[i]["shape"])
        shape[rng.randrange(6)] = integer(rng, "<I", 64)
        it.set_record(i, shape=tuple(shape))
    elif rng.random() < 0.2:
        it.set_record(i, **{name: it.records[rng.randrange(len(it.records))][name]})
    else:
        it.set_record(i, **{name: integer(rng, RECORD[name][1], it.records[i][name])})


def damage_dtype(it: Subject, rng: random.Random) -> None:
    """Another dtype, everything else as it was; now and then as many bytes as it needs."""
    i, dtype = rng.randrange(len(it.records)), rng.randrange(18)
    it.set_record(i, dtype=dtype)
    if rng.random() < 0.5:
        rows = rng.choice((1, 2, 3, 8))
        it.set_record(i, ndim=2, shape=(rows, rng.choice((32, 64, 96)), 0, 0, 0, 0))


def damage_counts(it: Subject, rng: random.Random) -> None:
    at = it.directory + rng.choice((0, 8))
    it.put_inside(at, struct.pack("<Q", integer(rng, "<Q", struct.unpack_from("<Q", it.data, at)[0])))


def swap_records(it: Subject, rng: random.Random) -> None:
    a, b = it.record(rng.randrange(len(it.records))), it.record(rng.randrange(len(it.records)))
    first, second = bytes(it.data[a : a + RECORD_NBYTES]), bytes(it.data[b : b + RECORD_NBYTES])
    it.put_inside(a, second)
    it.put_inside(b, first)


def repeat_record(it: Subject, rng: random.Random) -> None:
    """One record stands twice, with its own name or another's."""
    a, i = it.record(rng.randrange(len(it.records))), rng.randrange(len(it.records))
    b = it.record(i)
    it.put_inside(b + (0 if rng.random() < 0.5 else 6), bytes(it.data[a : a + RECORD_NBYTES])[: RECORD_NBYTES - 6])


def drop_record(it: Subject, rng: random.Random) -> None:
    """A record goes, the following ones move up; the counts say so or not."""
    start, end = it.record(rng.randrange(len(it.records))), it.record(len(it.records))
    it.put_inside(start, bytes(it.data[start + RECORD_NBYTES : end]))
    if rng.random() < 0.8:
        it.put_inside(it.directory, struct.pack("<Q", len(it.records) - 1))


def damage_name(it: Subject, rng: random.Random) -> None:
    """Bytes of the pool of names."""
    start, length = it.spans["dir"]
    pool = RECORD_NBYTES * len(it.records) + 16
    it.put_inside(start + pool + rng.randrange(max(length - pool, 1)), rng.choice(NAMES))


def move_section(it: Subject, rng: random.Random) -> None:
    """A section is where its copy is: behind the file, or over another one."""
    name, other = rng.sample(SECTIONS, 2)
    start, length = it.spans[name]
    content, behind = bytes(it.data[start : start + length]), rng.random() < 0.7
    unit = 4096 if name == "data" else rng.choice((1, 8))
    to = -(-len(it.data) // unit) * unit if behind else it.spans[other][0]
    if behind:
        it.data += bytes(to - len(it.data)) + content
    elif rng.random() < 0.5:
        it.put_inside(to, content)
    it.set(f"{name}_off", to)


def damage_header(it: Subject, rng: random.Random) -> None:
    start, length = it.spans["header"]
    token = rng.choice(TOKENS)
    it.put_inside(start + rng.randrange(length - len(token)), token)


def damage_field(it: Subject, rng: random.Random) -> None:
    """A key of the header or of ``arch`` gets another value, or goes (``...``)."""
    header = {**it.header, "arch": dict(it.header["arch"])}
    name, changed = rng.choice((*FIELDS, *header["arch"], *ARCH_FIELDS)), rng.choice(VALUES)
    place = header if name in FIELDS else header["arch"]
    place[name] = changed
    if changed is ...:
        del place[name]
    it.put_header(json.dumps(header).encode())


def edit_json(it: Subject, rng: random.Random) -> None:
    """What a JSON library would not write: repeated keys, depth, huge numbers, other encodings."""
    raw = json.dumps(it.header)
    it.put_header(rng.choice(HEADER_EDITS)(raw, rng))


def damage_bytes(it: Subject, rng: random.Random) -> None:
    start, length = it.spans[rng.choice([name for name in SECTIONS[1:] if it.spans[name][1]])]
    at = start + rng.randrange(length)
    it.put_inside(at, rng.randbytes(min(rng.randrange(1, 17), start + length - at)))


def flip_payload(it: Subject, rng: random.Random) -> None:
    """One bit to 64 of them, anywhere in the data."""
    start, length = it.spans["data"]
    for _ in range(rng.choice((1, 2, 64))):
        at = start + rng.randrange(max(length, 1))
        if at < len(it.data):
            it.data[at] ^= 1 << rng.randrange(8)


def damage_payload(it: Subject, rng: random.Random) -> None:
    """Where a payload says how long its parts are, or what its scales are; else anywhere."""
    record = rng.choice(it.records)
    size, shape = record["nbytes"], record["shape"][: record["ndim"]]
    at = min(rng.choice((*told_by_content(record["dtype"], shape), rng.randrange(max(size, 1)))), size - 1)
    at += it.spans["data"][0] + record["off"]
    if at < len(it.data):
        it.put_inside(at, rng.choice((b"\0", b"\xff", bytes([it.data[at] ^ 1 << rng.randrange(8)]))))


def damage_masks(it: Subject, rng: random.Random) -> None:
    """Counts or meta of the masks section: a word of the head, or a token somewhere in the JSON."""
    start, length = it.spans["masks"]
    if not length:
        return damage_bytes(it, rng)
    meta_len = struct.unpack_from("<I", it.data, start + 4)[0]
    if rng.random() < 0.2:
        at = start + rng.choice((0, 4))
        it.put_inside(at, struct.pack("<I", integer(rng, "<I", struct.unpack_from("<I", it.data, at)[0])))
    else:
        token = rng.choice((*TOKENS, b"1", b"8", b"9", b"false"))
        it.put_inside(start + 8 + rng.randrange(max(min(meta_len, length) - len(token), 1)), token)
    return None


def damage_index(it: Subject, rng: random.Random) -> None:
    """A word of the sparse index."""
    start, length = it.spans["index"]
    if length:
        at = start + 4 * rng.randrange(length // 4)
        it.put_inside(at, struct.pack("<I", integer(rng, "<I", struct.unpack_from("<I", it.data, at)[0])))
    else:
        damage_record(it, rng)


def damage_skills(it: Subject, rng: random.Random) -> None:
    """A registry of two skills: no array, or one key of a record is something else."""
    skills: list[Any] = [{"id": "a", "name": "A", "layers": [0], "task": None}, {"id": "b"}]
    registry: Any = skills
    if rng.random() < 0.2:
        registry = rng.choice((skills[0], [*skills, None], [*skills, []], 1, "x"))
    else:
        skills[rng.randrange(2)][rng.choice(("id", "name", "layers", "base_dir_hash", "task", "other"))] = rng.choice(
            SKILL_VALUES
        )
    it.put_header(json.dumps({**it.header, "skills": registry}).encode())


def resize(it: Subject, rng: random.Random) -> None:
    """The file ends earlier or later."""
    if rng.random() < 0.6:
        del it.data[rng.choice((rng.randrange(len(it.data)), len(it.data) - 1, 128 + rng.randrange(64))) :]
    else:
        it.data += rng.randbytes(rng.choice((1, 7, 4096)))


def splice(it: Subject, rng: random.Random, other: bytes) -> None:
    """A piece of another file, where it was there or anywhere."""
    at, length = rng.randrange(len(other)), rng.choice((8, 56, 128, 1024, 4096))
    to = at if rng.random() < 0.6 else rng.randrange(max(len(it.data), 1))
    it.put_inside(to, other[at : at + length])


DAMAGES: tuple[Damage, ...] = (damage_envelope, damage_record, damage_header, damage_field, damage_bytes)
ALL: tuple[Damage, ...] = (
    *DAMAGES,
    swap_envelope,
    damage_dtype,
    damage_counts,
    swap_records,
    repeat_record,
    drop_record,
    damage_name,
    move_section,
    edit_json,
    flip_payload,
    damage_payload,
    damage_masks,
    damage_index,
    damage_skills,
)


def mutants(original: bytes, damage: Damage, count: int) -> Iterator[bytes]:
    """``count`` files with one damage each, the same ones every time. Only damage to the envelope may break a hash."""
    rng = random.Random(damage.__name__)
    for _ in range(count):
        it = Subject(original)
        damage(it, rng)
        yield bytes((it if damage is damage_envelope else it.rehash()).data)


def mutate(originals: Sequence[bytes], rng: random.Random) -> bytes:
    """One of ``originals`` with one to four damages, four times out of five with every hash made right again."""
    it = Subject(rng.choice(originals))
    for damage in rng.choices(ALL, k=rng.choice((1, 1, 1, 2, 2, 3, 4))):
        damage(it, rng)
    if rng.random() < 0.05:
        splice(it, rng, rng.choice(originals))
    if rng.random() < 0.05:
        resize(it, rng)
    if len(it.data) >= ENVELOPE_NBYTES and rng.random() < REHASHED:
        rehash(Cmf({}, [], data=it.data))
    return bytes(it.data)
