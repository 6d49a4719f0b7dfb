"""A skill of a file as a standalone skill file, bound to a base (SPEC 9.1)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cortiq.container import File, MaskSet, TensorSpec, encode_masks, open_single, write_file
from cortiq.container import open as open_model
from cortiq.container.digest import covered
from cortiq.container.directory import parse_directory
from cortiq.container.envelope import parse_envelope
from cortiq.container.hashing import hash64
from cortiq.container.history import read_history
from cortiq.container.skill_file import backbone, dir_key
from cortiq.container.skill_records import check_new_id
from cortiq.container.skills import split_name
from cortiq.container.tensor import TensorEntry
from cortiq.errors import BaseMismatch, UsageError


@dataclass(frozen=True, slots=True)
class SkillExported:
    """What was written. ``base_dir_hash`` is the key of the base it can be applied to."""

    tensors: int
    nbytes: int
    base_dir_hash: int


def export_skill(
    path: str | os.PathLike[str],
    skill_id: str,
    output: Path,
    *,
    base: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> SkillExported:
    """Write the skill ``skill_id`` of a file to ``output``, bound to ``base`` or to the file as it was before it had
    skills, which a file that grew in place still knows.

    Of a file without that skill, a specialist, everything becomes the skill in which it differs from ``base``;
    ``apply_skill`` makes the specialist of it again.

    Raises UsageError (``skill``; ``skill_empty`` for one without tensors; ``exists`` unless ``force``; ``base`` when no
    earlier version is there; ``skill_delta`` for a difference a skill cannot hold), BaseMismatch.base when ``base`` has
    another backbone, Parse.skill_id for an id nobody may write, HashMismatch for payloads that are not what the file
    says, and what ``open`` and ``write_file`` raise.
    """
    with open_model(path) as file:
        check_new_id(skill_id)
        sources = [path] if base is None else [path, base]
        if output.exists() and (not force or any(output.samefile(source) for source in sources)):
            raise UsageError("the output exists already", code="exists", path=str(output))
        if base is not None and skill_id not in file.skills.ids:
            entries, key = _difference(file, base)
            masks = file.section("masks")
        else:
            entries = file.skills.entries(skill_id)
            key = _key_before_skills(file) if base is None else _key_of(Path(base), file)
            own = _own_masks(file, skill_id)
            masks = None if own is None else memoryview(encode_masks(own, file.arch))
        if not entries:
            raise UsageError("the skill has no tensors", code="skill_empty", path=str(file.path), found=skill_id)
        specs = [
            TensorSpec(name, entry.dtype, entry.shape, entry.nbytes, (file[entry.name].raw,), entry.hash or None)
            for name, entry in entries.items()
        ]
        write_file(output, _header(file, skill_id, key, len(specs)), specs, masks=masks)
        return SkillExported(len(specs), sum(spec.nbytes for spec in specs), key)


def _difference(file: File, path: str | os.PathLike[str]) -> tuple[dict[str, TensorEntry], int]:
    """The tensors in which a specialist differs from the base at ``path``, and the key of the base."""
    with open_single(path) as base:
        for what, differs in (
            ("skills of its own", bool(file.skills.ids)),
            ("no tensor of this name", next((name for name in covered(base) if name not in file), None)),
            ("another tokenizer", file.section("vocab") != base.section("vocab")),
        ):
            if differs:
                raise UsageError(
                    "the specialist differs from the base in what a skill cannot hold",
                    code="skill_delta",
                    path=str(file.path),
                    tensor=differs if isinstance(differs, str) else None,
                    found=what,
                )
        own = {name: file.tensors[name] for name in covered(file)}
        return {name: entry for name, entry in own.items() if not _same(file, base, name)}, dir_key(base)


def _same(file: File, base: File, name: str) -> bool:
    """Whether a tensor is that of the base, byte for byte: equal hashes do not say so."""
    if name not in base or _content(base.tensors[name]) != _content(file.tensors[name]):
        return False
    mine, theirs = (np.frombuffer(part[name].raw, np.uint8) for part in (file, base))
    return bool(np.array_equal(mine, theirs))


def _header(file: File, skill_id: str, key: int, tensors: int) -> dict[str, Any]:
    fields = file.header.to_dict()
    record: dict[str, Any] = next(
        (dict(r) for r in fields.get("skills") or [] if r["id"] == skill_id), {"id": skill_id}
    )
    task = record.pop("input_mask_task", None)
    record |= {
        "base_dir_hash": f"{key:016x}",
        "base_arch": file.arch.arch_name,
        "task": task or "general",
    }
    record.setdefault("provenance", {"cut_from": file.name, "tensors": tensors})
    kept = {name: value for name, value in fields.items() if name not in ("section_hashes", "shard")}
    return {**kept, "skills": [record]}


def _own_masks(file: File, skill_id: str) -> MaskSet | None:
    """The mask the skill runs under, alone."""
    record = file.skills.get(skill_id)
    task = None if record is None else record.input_mask_task
    if task is None or file.masks is None or task not in file.masks:
        return None
    return MaskSet.of([file.masks[task]], task)


def _key_of(path: Path, file: File) -> int:
    """The key of another file, whose backbone must be this one's."""
    with open_single(path) as base:
        for mine in backbone(file.tensors):
            theirs = base.tensors.get(mine.name)
            if theirs is None or _content(theirs) != _content(mine):
                raise BaseMismatch(
                    "the backbone of the file is not that of the base",
                    code="base",
                    path=str(path),
                    tensor=mine.name,
                    expected=f"hash {mine.hash:016x}",
                    found="no such tensor" if theirs is None else f"hash {theirs.hash:016x}",
                )
        return dir_key(base)


def _content(entry: TensorEntry) -> tuple[object, ...]:
    return entry.dtype, entry.shape, entry.nbytes, entry.hash


def _key_before_skills(file: File) -> int:
    """The key of the oldest version in ``file`` that is its backbone without a skill."""
    present = backbone(file.tensors)
    for version in read_history(file).versions:
        envelope = parse_envelope(version.head, file.size)
        raw = bytes(file.view(envelope.directory))
        directory = parse_directory(raw, envelope)
        if backbone(directory) == present and not any(map(split_name, directory)):
            return envelope.directory_hash or hash64(raw)
    raise UsageError(
        "the file does not know what it was before it had skills: name the base with --base",
        code="base",
        path=str(file.path),
    )
