"""What verifying a file says about its masks, sparse index and skills, beyond what opening it has refused.

Every function yields findings and raises nothing for content it dislikes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cortiq.container.file import File
from cortiq.container.finding import Finding
from cortiq.container.skill_records import Skill, is_writable_id
from cortiq.container.skills import PREFIX, shape_problem, split_name
from cortiq.container.sparse_index import check_sparse_index, disagreements
from cortiq.errors import Bounds, CortiqError, Parse


def check_masks(file: File) -> Iterator[Finding]:
    """Problems: bits beyond a dimension, a layer without experts. Warnings: names that lead nowhere."""
    masks = file.masks
    if masks is None:
        return
    for problem in masks.tails():
        yield Finding(problem)
    for name in masks:
        try:
            masks[name].check_experts()
        except Parse as error:
            yield Finding(error)
    if masks and masks.default is None:
        yield _odd("masks", "mask_default", "no mask has the name of the default task", found=masks.default_task)
    for name, info in masks.infos.items():
        if info.parent is not None and info.parent not in masks:
            yield _odd("masks", "mask_parent", f"the mask {name!r} descends from none there is", found=info.parent)


def check_index(file: File) -> Iterator[Finding]:
    """Problems: an index that cannot be read or meant. Warnings: one that contradicts the masks; nothing uses it."""
    try:
        index = file.sparse_index
    except Bounds as error:
        yield Finding(error)
        return
    if index is None:
        return
    offset = file.envelope.index.offset
    for problem in check_sparse_index(index, file.arch, file.masks, offset):
        yield Finding(problem)
    if file.masks is not None:
        for contradiction in disagreements(index, file.masks, offset):
            yield Finding(contradiction, problem=False)


def check_skills(file: File) -> Iterator[Finding]:
    """Problems: a replacement that does not fit the backbone. Warnings: records and tensors that do not belong
    together, ids no writer should give, selections nothing can route by, lists that hold no layers.

    What one file of a set cannot know, because the tensors are elsewhere, is not judged; a set that is open is whole.
    """
    whole = bool(file.parts) or file.header.shard is None or file.header.shard.count == 1
    for i, skill in enumerate(file.header.skills):
        yield from _check_record(skill, file.header["skills"][i].get("layers"), file)
        # The tensors of an applied or standalone skill have the names they have in the base.
        merged = skill.base_dir_hash is not None or skill.base_arch is not None
        if whole and not merged and skill.id not in file.skills.replaced:
            yield _odd("header", "skill_empty", f"the skill {skill.id!r} has no tensors")
    for name in file.tensors:
        if name.startswith(PREFIX):
            yield from _check_tensor(name, file, whole)


def _check_record(skill: Skill, layers: Any, file: File) -> Iterator[Finding]:
    if not is_writable_id(skill.id):
        yield _odd("header", "skill_id", "an id no writer should give", found=skill.id)
    if layers is not None and (not isinstance(layers, tuple) or len(layers) != len(skill.layers)):
        message = f"the layers of the skill {skill.id!r} are not a list of whole numbers"
        yield _odd("header", "skill_layers", message)
    beyond = [layer for layer in skill.layers if layer >= file.arch.num_layers]
    if beyond:
        message = f"the skill {skill.id!r} names layers the model lacks"
        yield _odd("header", "skill_layers", message, f"below {file.arch.num_layers}", beyond[0])
    if skill.selection is not None:
        reason = skill.selection.unusable(file.arch.num_layers * file.arch.num_loops)
        if reason is not None:
            yield _odd("header", "selection", f"nothing can be routed to the skill {skill.id!r}: {reason}")


def _check_tensor(name: str, file: File, whole: bool) -> Iterator[Finding]:
    parts = split_name(name)
    if parts is None:
        yield _odd("directory", "skill_name", "not the name of a replacement: skill.{id}.{name}", tensor=name)
        return
    skill_id, replaced = parts
    if replaced in file.tensors:
        problem = shape_problem(file.tensors[name], file.tensors[replaced])
        if problem is not None:
            yield Finding(problem)
    elif whole and not file.header.is_skill_file:
        message = "the skill replaces a tensor the backbone lacks"
        error = Parse(
            message, code="skill_shape", section="directory", tensor=name, expected=replaced, found="no such tensor"
        )
        yield Finding(error)
    if whole and skill_id not in file.skills:
        yield _odd("directory", "skill_unregistered", "the skill has no record in the header", tensor=name)


def _odd(
    section: str,
    code: str,
    message: str,
    expected: object = None,
    found: object = None,
    *,
    tensor: str | None = None,
) -> Finding:
    error: CortiqError = Parse(message, code=code, section=section, tensor=tensor, expected=expected, found=found)
    return Finding(error, problem=False)
