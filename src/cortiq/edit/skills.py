"""Skills added to a file and taken out of it in place (SPEC 9): their tensors, their record, and the mask they run
under. What others rely on stays where it is.

A skill that brings a mask gets it under its own id, and the record's ``input_mask_task`` says so. That mask belongs to
the skill: it is replaced and removed with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cortiq.container import Change, File, InPlace, MaskSet, TensorSpec, grow_by
from cortiq.container.skill_file import backbone
from cortiq.container.skill_records import check_new_id
from cortiq.container.skills import PREFIX
from cortiq.convert.options import Progress
from cortiq.edit.masks import GENERAL, section, users_of, with_mask, without_mask
from cortiq.edit.skill_folder import FolderSkill
from cortiq.edit.skill_source import SkillSource, StandaloneSkill
from cortiq.errors import Parse, UsageError

_LAYER = re.compile(r"model\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class SkillAdded:
    """What was done. ``nbytes`` is the size of the tensors, ``mask`` the mask that came along."""

    id: str
    tensors: int
    nbytes: int
    replaced: bool
    mask: str | None


def open_skill(path: Path, *, threads: int = 1, progress: Progress | None = None) -> SkillSource:
    """The skill in ``path``: a folder, or a standalone skill file. Raises as those two."""
    return FolderSkill(path, threads=threads, progress=progress) if path.is_dir() else StandaloneSkill(path)


def add_skill(
    path: str | os.PathLike[str],
    source: SkillSource,
    *,
    skill_id: str | None = None,
    overwrite: bool = False,
    force: bool = False,
    allowed: InPlace | None = None,
) -> SkillAdded:
    """Add the skill of ``source``, as ``skill_id`` when given.

    A skill of this id gives way with ``overwrite``. ``force`` takes a skill that was cut against other bytes, as long
    as its tensors fit.

    Raises UsageError (``skill_exists``; ``skill_id`` when nothing says the id; ``mask_name`` for the name of a mask
    that is not the skill's), Parse (``skill_id``; ``skill_shape`` for a tensor the backbone does not have like this),
    what ``source.check``, ``source.specs`` and ``grow_by`` raise.
    """
    done: list[SkillAdded] = []

    def decide(file: File) -> Change:
        own = _id_of(source, skill_id)
        exists = own in file.skills.ids
        if exists and not overwrite:
            raise UsageError(
                "the file has a skill of this id; --replace puts the new one in its place",
                code="skill_exists",
                found=own,
            )
        source.check(file, force=force)
        check_fits(source, file)
        specs = source.specs(file, {name: f"{PREFIX}{own}.{name}" for name in source.shapes})
        nbytes = sum(spec.nbytes for spec in specs)
        mask = None if source.mask is None else own
        done.append(SkillAdded(own, len(specs), nbytes, exists, mask))
        return _adding(file, source, own, specs)

    grow_by(path, decide, allowed=allowed)
    return done[-1]


def remove_skill(path: str | os.PathLike[str], skill_id: str, *, allowed: InPlace | None = None) -> int:
    """Take a skill out and give the number of its tensors. Raises UsageError.skill and what ``grow_by`` raises.

    The bytes stay in the file, dead, until it is compacted.
    """
    removed: list[int] = []

    def decide(file: File) -> Change:
        own = file.skills.entries(skill_id)
        removed.append(len(own))
        return Change(
            remove=frozenset(entry.name for entry in own.values()),
            header=_without_record(file, skill_id),
            masks=section(_without_own_mask(file, skill_id), file),
            what=f"skill remove {skill_id}",
        )

    grow_by(path, decide, allowed=allowed)
    return removed[-1]


def check_fits(source: SkillSource, file: File) -> None:
    """Raises Parse.skill_shape for a tensor that replaces none of the backbone, or one of another shape."""
    there = {entry.name: entry.shape for entry in backbone(file.tensors)}
    for name, shape in source.shapes.items():
        if there.get(name) != shape:
            raise Parse(
                "the skill's tensor does not fit the backbone",
                code="skill_shape",
                path=str(source.path),
                tensor=name,
                expected=list(there[name]) if name in there else "a tensor of the backbone",
                found=list(shape),
            )


def _id_of(source: SkillSource, given: str | None) -> str:
    found = source.record.get("id") if given is None else given
    if found is None:
        raise UsageError(
            "nothing says what the skill is called: name it with --id", code="skill_id", path=str(source.path)
        )
    check_new_id(found)
    return str(found)


def _adding(file: File, source: SkillSource, own: str, specs: Sequence[TensorSpec]) -> Change:
    """The tensors, record and mask in the place of those of a skill of the same id, or behind the others."""
    record: dict[str, Any] = {"id": own, **{key: value for key, value in source.record.items() if key != "id"}}
    if record.get("layers") is None:
        layers = {int(found[1]) for name in source.shapes if (found := _LAYER.match(name))}
        record["layers"] = sorted(layers)
    masks = _without_own_mask(file, own)
    if source.mask is not None:
        if file.masks is not None and own in file.masks and not _owns_mask(file, own):
            raise UsageError("the file has a mask of this name that is not the skill's", code="mask_name", found=own)
        info = replace(source.mask.info, name=own, priority="Normal", parent=None)
        masks = with_mask(file.masks, replace(source.mask, info=info), file.arch)
        record["input_mask_task"] = own
    return Change(
        add=specs,
        remove=frozenset(file.skills.replaced.get(own, {}).values()),
        header=_with_record(file, record),
        masks=section(masks, file),
        what=f"skill add {own}",
    )


def _with_record(file: File, record: dict[str, Any]) -> dict[str, Any]:
    fields = file.header.to_dict()
    records = list(fields.get("skills") or [])
    at = next((i for i, found in enumerate(records) if found["id"] == record["id"]), len(records))
    records[at : at + 1] = [record]
    return {**fields, "skills": records}


def _without_record(file: File, skill_id: str) -> dict[str, Any]:
    fields = file.header.to_dict()
    if "skills" in fields:
        fields["skills"] = [record for record in fields["skills"] if record["id"] != skill_id]
    return fields


def _owns_mask(file: File, skill_id: str) -> bool:
    record = file.skills.get(skill_id)
    return record is not None and record.input_mask_task == skill_id


def _without_own_mask(file: File, skill_id: str) -> MaskSet | None:
    """The masks of the file without the one that belongs to the skill, unless another skill or mask names it too."""
    masks = file.masks
    if masks is None or skill_id not in masks or not _owns_mask(file, skill_id):
        return masks
    if len(users_of(skill_id, file)) > 1:
        return masks
    left = without_mask(masks, skill_id)
    if left is not None and left.default_task == skill_id and GENERAL in left:
        return replace(left, default_task=GENERAL)
    return left
