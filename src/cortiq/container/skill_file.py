"""Standalone skill files: the tensors a skill changed, bound to the directory of the base they were cut against
(SPEC 9.1). Such a file is no model; it is applied to a copy of its base.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cortiq.container.digest import covered
from cortiq.container.directory import encode_directory, parse_directory
from cortiq.container.envelope import parse_envelope
from cortiq.container.file import File
from cortiq.container.hashing import hash64
from cortiq.container.history import read_history
from cortiq.container.skill_records import Skill
from cortiq.container.skills import split_name
from cortiq.container.tensor import TensorEntry
from cortiq.errors import BaseMismatch, Shard, UnsupportedArch, UsageError

MAX_GROWTH_STEPS = 64


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A standalone skill. ``skill`` is its first record that is bound to a base, ``base_dir_hash`` the base's key.

    Its tensors have the names they have in the base, and are the file's.
    """

    file: File
    skill: Skill
    base_dir_hash: int


def skill_file(file: File) -> SkillFile:
    """``file`` as a standalone skill. Raises UsageError.no_skill_file for one that is bound to no base."""
    for skill in file.header.skills:
        if skill.base_dir_hash is not None:
            return SkillFile(file, skill, skill.base_dir_hash)
    raise UsageError(
        "not a standalone skill file",
        code="no_skill_file",
        path=str(file.path),
        expected="a skill with base_dir_hash",
        found="none",
    )


def refuse_to_run(file: File) -> None:
    """Raises UnsupportedArch.skill_file for a standalone skill, saying what to do with it."""
    if file.header.is_skill_file:
        raise UnsupportedArch(
            "a skill file has no model of its own: make one with `cortiq skill apply BASE SKILL -o OUT`",
            code="skill_file",
            path=str(file.path),
        )


def dir_key(file: File) -> int:
    """What a skill cut against ``file`` carries: hash64 of its directory, as stored or, when unhashed, computed."""
    return file.dir_hash or hash64(file.tensors.raw)


def check_base(skill: SkillFile, base: File) -> None:
    """Returns when ``base`` is the file ``skill`` was cut against.

    Raises UsageError.same_file and .skill_base (itself, another standalone skill), Shard.base for one file of a set,
    and BaseMismatch: ``grown`` when the base was appended to since, ``base`` when it is another file.
    """
    if _same_file(skill.file, base):
        raise UsageError("a skill cannot be applied to itself", code="same_file", path=str(base.path))
    if base.header.is_skill_file:
        raise UsageError("the base is a standalone skill, not a model", code="skill_base", path=str(base.path))
    shard = base.header.shard
    if shard is not None and shard.count > 1:
        raise Shard(
            "the base is one file of a set",
            code="base",
            path=str(base.path),
            expected="a model in one file",
            found=f"shard {shard.no} of {shard.count}",
        )
    key, found = skill.base_dir_hash, dir_key(base)
    if key == found and key:
        return
    grown = _grown_from(base, key) if key else None
    raise BaseMismatch(
        _message(skill.skill, len(base) if grown is None else grown, grown is not None),
        code="base" if grown is None else "grown",
        path=str(base.path),
        expected=f"directory {key:016x}",
        found=f"{found:016x}",
    )


def _message(skill: Skill, count: int, grown: bool) -> str:
    name = f"the skill {skill.id!r}"
    if grown:
        return (
            f"the base has grown since {name} was cut: its first {count} tensors are those of the base, with the same "
            "hashes, but others follow"
        )
    arch = f", a {skill.base_arch!r}" if skill.base_arch else ""
    return f"{name} was cut against another model{arch}: these are not its bytes"


def _grown_from(base: File, key: int) -> int | None:
    """How many tensors the base had when its directory had this key, None when it never had it.

    What an earlier version in the file says counts only when the backbone is still what it was then.
    """
    for version in read_history(base).versions:
        envelope = parse_envelope(version.head, base.size)
        directory = base.view(envelope.directory)
        if key == (envelope.directory_hash or hash64(directory)):
            before = backbone(parse_directory(bytes(directory), envelope))
            return len(before) if all(base.tensors.get(entry.name) == entry for entry in before) else None
    return next((count for count, hash_ in _earlier_keys(base) if hash_ == key), None)


def backbone(tensors: Mapping[str, TensorEntry]) -> list[TensorEntry]:
    """The entries of a directory that belong to the model itself: neither to a skill nor to the digests."""
    return [tensors[name] for name in covered(tensors) if split_name(name) is None]


def _earlier_keys(base: File) -> Iterator[tuple[int, int]]:
    """(tensors, key) of the file before each append: growth puts whole skills behind the tensors there were."""
    entries = list(base.tensors.values())
    cuts = list(_cuts(entries))
    for count in cuts[-MAX_GROWTH_STEPS:]:
        yield count, hash64(encode_directory(entries[:count]))


def _cuts(entries: list[TensorEntry]) -> Iterator[int]:
    """Where another skill's tensors begin, from the end down to where the backbone ends."""
    following: str | None = None
    for i in range(len(entries) - 1, -1, -1):
        parts = split_name(entries[i].name)
        owner = None if parts is None else parts[0]
        if following is not None and owner != following:
            yield i + 1
        if owner is None:
            return
        following = owner


def _same_file(first: File, second: File) -> bool:
    try:
        return os.path.samefile(first.path, second.path)
    except OSError:  # moved away since it was opened; then the mapping decides
        return first is second
