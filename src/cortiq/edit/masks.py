"""Task masks added to a file and taken out of it in place (SPEC 5, 9): the masks section is appended anew, some KiB.

A file without masks gets an open one with the first: it is the default then, so that the model runs as before until
somebody chooses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from cortiq.container import Change, File, InPlace, Mask, MaskInfo, MaskSet, encode_masks, grow_by, new_mask
from cortiq.container.arch import Arch
from cortiq.edit.mask_source import MaskSource
from cortiq.errors import UsageError

GENERAL = "general"
_MAX_TASK = 2**32 - 1


@dataclass(frozen=True, slots=True)
class MaskAdded:
    """What was done: whether another mask gave way, and how many masks the file has now."""

    name: str
    replaced: bool
    count: int


def add_mask(
    path: str | os.PathLike[str],
    name: str,
    source: MaskSource,
    *,
    overwrite: bool = False,
    default: bool = False,
    allowed: InPlace | None = None,
) -> MaskAdded:
    """Add the mask of ``source`` as ``name``; with ``default`` it is used from now on when no other is chosen.

    Raises UsageError.mask_name for an empty name and for one that is there already, unless ``overwrite``;
    UsageError.mask_shape and SourceError.mask for a mask that does not fit the model, and what ``grow_by`` raises.
    """
    done: list[MaskAdded] = []

    def decide(file: File) -> Change:
        exists = file.masks is not None and name in file.masks
        if exists and not overwrite:
            raise UsageError(
                "the file has a mask of this name; --replace puts the new one in its place",
                code="mask_name",
                found=name,
            )
        made = with_mask(file.masks, source.read(file.arch, name), file.arch)
        if default:
            made = replace(made, default_task=name)
        done.append(MaskAdded(name, exists, len(made)))
        return Change(masks=section(made, file), what=f"masks add {name}")

    if not name:
        raise UsageError("a mask needs a name", code="mask_name")
    grow_by(path, decide, allowed=allowed)
    return done[-1]


def remove_mask(
    path: str | os.PathLike[str], name: str, *, default: str | None = None, allowed: InPlace | None = None
) -> None:
    """Take a mask out; ``default`` names the one that is used from now on when no other is chosen.

    Raises UsageError.mask for a name no mask has, UsageError.mask_used for a mask that is the default or that a skill
    or another mask names, and what ``grow_by`` raises.
    """

    def decide(file: File) -> Change:
        masks = file.masks
        for wanted in (name,) if default is None else (name, default):
            if masks is None or wanted not in masks:
                known = "a file with masks" if masks is None else f"one of {', '.join(masks)}"
                raise UsageError("the file has no such mask", code="mask", expected=known, found=wanted)
        assert masks is not None
        if default is not None:
            masks = replace(masks, default_task=default)
        _check_unused(masks, name, file)
        return Change(masks=section(without_mask(masks, name), file), what=f"masks remove {name}")

    grow_by(path, decide, allowed=allowed)


def with_mask(masks: MaskSet | None, mask: Mask, arch: Arch) -> MaskSet:
    """``masks`` and ``mask``, in the place of the one of its name or behind the others, with an id of its own."""
    if masks is None or not masks:
        masks = MaskSet.of([] if mask.name == GENERAL else [_open_mask(arch)], GENERAL)
    ids = {info.task_id for info in masks.infos.values()}
    if mask.name in masks:
        task = masks.infos[mask.name].task_id
    else:
        task = max(ids, default=-1) + 1
        if task > _MAX_TASK:
            raise UsageError("there is no task id left behind the largest one", code="mask_name", found=mask.name)
    placed = replace(mask, info=replace(mask.info, task_id=task))
    every = {**masks, mask.name: placed}
    return replace(MaskSet.of(every.values(), masks.default_task), extra=masks.extra)


def without_mask(masks: MaskSet, name: str) -> MaskSet | None:
    """``masks`` without one of them, None when no other is left."""
    left = [mask for mask in masks.values() if mask.name != name]
    return replace(MaskSet.of(left, masks.default_task), extra=masks.extra) if left else None


def section(masks: MaskSet | None, file: File) -> memoryview | None:
    """What ``Change`` is to be told: the bytes of ``masks``, none for no masks; None when ``file`` has these already.

    Raises as ``encode_masks``.
    """
    encoded = b"" if masks is None else encode_masks(masks, file.arch)
    return None if encoded == bytes(file.section("masks") or b"") else memoryview(encoded)


def _open_mask(arch: Arch) -> Mask:
    info = MaskInfo(task_id=0, name=GENERAL, sparsity=0.0, priority="Fallback", description="everything")
    return new_mask(arch, info)


def users_of(name: str, file: File) -> list[str]:
    """The skills and the other masks of ``file`` that name this mask, in words."""
    infos = {} if file.masks is None else file.masks.infos
    users = [f"the skill {skill.id!r}" for skill in file.header.skills if skill.input_mask_task == name]
    return users + [f"the mask {other!r}" for other, info in infos.items() if info.parent == name and other != name]


def _check_unused(masks: MaskSet, name: str, file: File) -> None:
    users = users_of(name, file)
    if masks.default_task == name and len(masks) > 1:
        users.append("the default task; --default names another")
    if users:
        raise UsageError(f"the mask {name!r} is still named by {users[0]}", code="mask_used", found=name)
