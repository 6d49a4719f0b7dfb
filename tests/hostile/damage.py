"""Damages by name: each function makes one that changes a base file and leaves its hashes alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from builders.cmf import RECORD, U8, Cmf, T, header, pattern
from hostile.row import Damage, Sparse

U32, U64 = 2**32 - 1, 2**64 - 1


def chain(*damages: Callable[[Cmf], Cmf]) -> Damage:
    """One after the other."""

    def damage(cmf: Cmf) -> Cmf:
        for step in damages:
            cmf = step(cmf)
        return cmf

    return damage


def envelope(**values: Any) -> Callable[[Cmf], Cmf]:
    """Fields of the envelope; a callable gets the file."""

    def damage(cmf: Cmf) -> Cmf:
        made = {name: value(cmf) if callable(value) else value for name, value in values.items()}
        for name, value in made.items():
            cmf.set(name, value)
        return cmf

    return damage


def cut(length: int) -> Damage:
    """The first bytes only."""
    return lambda cmf: bytes(cmf.data[:length])


def content(data: bytes) -> Damage:
    """Something else altogether."""
    return lambda cmf: data


def flip(at: Callable[[Cmf], int], bits: int = 4) -> Callable[[Cmf], Cmf]:
    """Some bits of one byte."""
    return lambda cmf: cmf.put(at(cmf), bytes([cmf.data[at(cmf)] ^ bits]))


def record(i: int, **values: Any) -> Callable[[Cmf], Cmf]:
    """Fields of a directory record; a callable gets the file."""
    assert set(values) <= set(RECORD)

    def damage(cmf: Cmf) -> Cmf:
        return cmf.set_record(i, **{name: v(cmf) if callable(v) else v for name, v in values.items()})

    return damage


def counts(**values: Any) -> Callable[[Cmf], Cmf]:
    """``count`` and ``pool_off`` of the directory."""

    def damage(cmf: Cmf) -> Cmf:
        return cmf.set_counts(**{name: v(cmf) if callable(v) else v for name, v in values.items()})

    return damage


def fields(**changes: Any) -> Callable[[Cmf], Cmf]:
    """Fields of the header (``...`` removes one)."""
    return lambda cmf: _stale(cmf, cmf.with_header(**changes))


def arch(**changes: Any) -> Callable[[Cmf], Cmf]:
    """Keys of the header's ``arch`` (``...`` removes one)."""
    return lambda cmf: _stale(cmf, cmf.with_arch(**changes))


def raw_header(raw: bytes | Callable[[], bytes]) -> Callable[[Cmf], Cmf]:
    """The header as these bytes; big ones are made when they are needed."""
    return lambda cmf: _stale(cmf, cmf.with_header(raw() if callable(raw) else raw))


def header_text(**changes: object) -> str:
    """A minimal header as JSON."""
    return json.dumps(header(**changes))


def with_field(fragment: str) -> bytes:
    """A minimal header with one more field, written as it is."""
    return (header_text()[:-1] + ", " + fragment + "}").encode()


def in_arch(fragment: str) -> bytes:
    """A minimal header with one more key of ``arch``, written as it is."""
    return header_text().replace('"arch": {', '"arch": {' + fragment + ", ").encode()


def one_tensor(nbytes: int, name: str = "t") -> Callable[[], Cmf]:
    """A base file of one u8 tensor, whose record a damage may make say anything about its bytes."""
    return lambda: Cmf(header(), [T(name, U8, (nbytes,), pattern(nbytes))]).build()


def single(dtype: int, shape: tuple[int, ...], nbytes: int, **values: Any) -> Damage:
    """A file whose one tensor claims a dtype and a shape for ``nbytes`` bytes."""

    def damage(_: Cmf) -> Cmf:
        return one_tensor(nbytes)().set_record(0, dtype=dtype, ndim=len(shape), shape=shape, **values)

    return damage


def named(name: bytes) -> Damage:
    """A file whose one tensor has these bytes as its name."""

    def damage(_: Cmf) -> Cmf:
        made = one_tensor(4, "n" * len(name))()
        return made.put(made.get("dir_off") + 16 + 56, name)

    return damage


def claimed(dtype: int, shape: tuple[int, ...], nbytes: int) -> Damage:
    """A sparse file whose one tensor claims ``nbytes``, which are there."""

    def damage(_: Cmf) -> Sparse:
        made = one_tensor(0)().set("data_len", nbytes)
        made.set_record(0, dtype=dtype, ndim=len(shape), shape=shape, nbytes=nbytes)
        return Sparse(made, made.get("data_off") + nbytes)

    return damage


def payload(at: int | Callable[[bytes], int], data: bytes) -> Callable[[Cmf], Cmf]:
    """Bytes of the first tensor."""

    def damage(cmf: Cmf) -> Cmf:
        where = at(cmf.payload(0)) if callable(at) else at
        return cmf.put(cmf.get("data_off") + where, data)

    return damage


def resized(extra: int) -> Callable[[Cmf], Cmf]:
    """The only tensor longer or shorter, in file and record; its other fields as they are."""

    def damage(cmf: Cmf) -> Cmf:
        nbytes = cmf.get_record(0, "nbytes") + extra
        if extra < 0:
            del cmf.data[extra:]
        else:
            cmf.data += bytes(extra)
        return cmf.set("data_len", nbytes).set_record(0, nbytes=nbytes)

    return damage


def _stale(before: Cmf, after: Cmf) -> Cmf:
    return after.set("header_hash", before.get("header_hash"))
