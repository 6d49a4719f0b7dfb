"""J: sets of shards (SPEC 10)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders.cmf import F16, Cmf, T, header, pattern
from hostile.row import Case, Row

COUNT = 3
Shards = dict[int, Cmf]


def shard(no: int, count: int = COUNT, name: str | None = None, **changes: Any) -> Cmf:
    """One file of a set: a norm of one layer."""
    tensor = T(name or f"model.layers.{no}.input_layernorm.weight", F16, (64,), pattern(128, no))
    return Cmf(header(shard={"no": no, "count": count}, tokenizer_config=None, **changes), [tensor]).build()


def path_of(folder: Path, no: int, count: int = COUNT) -> Path:
    return folder / f"m-{no:05}-of-{count:05}.cmf"


def opened(change: Callable[[Path], object] = lambda folder: None, no: int = 1, **more: Any) -> Case:
    """A whole set, changed, and opened by the name of one of its files."""

    def place(path: Path) -> Path:
        for i in range(1, COUNT + 1):
            shard(i).save(path_of(path.parent, i))
        change(path.parent)
        return path_of(path.parent, no)

    return Case(place=place, **more)


def without(no: int, make: Callable[[Path], object] = lambda path: None) -> Case:
    """Something else, or nothing, where a shard should be."""

    def change(folder: Path) -> None:
        path_of(folder, no).unlink()
        make(path_of(folder, no))

    return opened(change, says=path_of(Path(), no).name)


def other(no: int, made: Cmf, **more: Any) -> Case:
    """Another file where a shard should be."""
    return opened(lambda folder: made.save(path_of(folder, no)), **more)


def swapped(folder: Path) -> None:
    second, third = path_of(folder, 2), path_of(folder, 3)
    second.rename(folder / "kept")
    third.rename(second)
    (folder / "kept").rename(third)


def in_sets(*names: str | None, dirs: list[int] | None = None) -> Case:
    """Shards that say which set they are of, and the first which directories they have."""

    def change(folder: Path) -> None:
        for no, name in enumerate(names, 1):
            made = shard(no)
            made.header["shard"] |= {} if name is None else {"set": name * 32}
            if dirs is not None and no == 1:
                made.header["shard"]["dirs"] = [f"{stated:016x}" for stated in dirs]
            made.with_header().save(path_of(folder, no))

    return opened(change)


def alone(path: Path) -> Path:
    made = path.with_name("x-00001-of-00002.cmf")
    path.rename(made)
    return made


def one_of_many(path: Path) -> Path:
    return shard(1, 100_000).save(path_of(path.parent, 1, 100_000))


def eighty(path: Path) -> Path:
    made = [shard(no, 80).save(path_of(path.parent, no, 80)) for no in range(1, 81)]
    return made[0]


WHOLE = [f"model.layers.{no}.input_layernorm.weight" for no in range(1, COUNT + 1)]

ROWS = (
    Row(
        "J1",
        "a sibling that is missing or no file",
        [
            without(2),
            without(3),
            without(2, lambda path: path.mkdir()),
            without(2, lambda path: path.symlink_to("nothing")),
            without(2, lambda path: os.mkfifo(path)),
        ],
        raw="SH Shard.missing",
        needs="shards",
    ),
    Row(
        "J2",
        "numbers that differ between names and headers",
        [other(2, shard(2, 4)), other(2, shard(3)), other(2, shard(1)), other(1, shard(1, 2))],
        raw="SH Shard.mismatch",
        needs="shards",
    ),
    Row("J3", "two shards exchanged by name", [opened(swapped)], raw="SH Shard.mismatch", needs="shards"),
    Row(
        "J4",
        "a shard of another model",
        [
            in_sets("a", "b", "a"),
            in_sets("a", None, "a"),
            in_sets(None, "a", None),
            in_sets("a", "a", "a", dirs=[0, 1, 2]),
            Case(place=in_sets("a", "A", "a").place, raw="SH ok"),
            Case(place=in_sets("a", "a", "aa").place, raw="SH Parse.shard"),
            Case(place=in_sets("a", "a", "a", dirs=[0, 1]).place, raw="SH Parse.shard"),
            other(2, shard(2).with_arch(hidden_size=128)),
            Case(place=in_sets("a", "a", "a").place, raw="SH ok"),
        ],
        raw="SH Shard.set_mismatch",
        needs="shards",
    ),
    Row(
        "J5",
        "one name in two shards",
        [other(2, shard(2, name=WHOLE[0]))],
        raw="SH Parse.name_dup",
        needs="shards",
    ),
    Row(
        "J6",
        "a later shard with what only the first should have",
        [
            other(2, shard(2, skills=[{"id": "a"}])),
            Case(
                lambda _: shard(2, skills=[{"id": "a"}]),
                needs="verify_checks",
                raw=("O ok", "V warning Parse.shard_extra"),
            ),
        ],
        raw="SH ok",
        needs="shards",
    ),
    Row(
        "J7",
        "any name of the set opens it",
        [opened(no=no, holds=lambda file: sorted(file) == WHOLE) for no in (1, 2, 3)],
        raw="SH ok",
        needs="shards",
    ),
    Row(
        "J8",
        "a whole model under a shard's name; writing one under such a name",
        [
            Case(place=alone, raw=("O ok", "SH ok")),
            Case(
                place=lambda path: path.rename(path.with_name("source.cmf")).with_name("x-00001-of-00002.cmf"),
                raw="W UsageError",
            ),
        ],
    ),
    Row(
        "J9",
        "one of 100,000 shards",
        [Case(place=one_of_many, says="-00002-of-100000.cmf")],
        raw="SH Shard.missing",
        needs="shards",
    ),
    Row(
        "J10",
        "more shards than file descriptors",
        [Case(place=eighty, room=64, raw="SH OSError"), Case(place=eighty, raw="SH ok")],
        needs="shards",
    ),
)
