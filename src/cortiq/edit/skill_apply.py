"""A standalone skill and the base it was cut against, made into the model they are together (SPEC 9.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cortiq.container import File, write_file
from cortiq.container import open as open_model
from cortiq.edit.carried import Progress, carried
from cortiq.edit.skill_source import StandaloneSkill
from cortiq.errors import UsageError

_OF_THE_FILE = ("section_hashes", "digests", "shard", "skills")
_FROM_THE_BASE = ("tokenizer_config", "generation_config", "skills")


@dataclass(frozen=True, slots=True)
class SkillApplied:
    """What was written: how many tensors of the base the skill replaced, and how many it has beyond those."""

    replaced: int
    added: int


def apply_skill(
    base: Path,
    skill: Path,
    output: Path,
    *,
    force: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SkillApplied:
    """Write the specialist that the skill file ``skill`` was cut from as ``output``.

    Its tensors are those of ``base`` in their order, replaced where the skill has one of the name, then the skill's
    others. The header is the specialist's, which the skill file has; what it does not state, the tokenizer and the
    skills are the base's. Masks are the skill's when it brings any. ``force`` takes a base of another directory hash,
    ``overwrite`` an output that exists.

    Raises UsageError.exists, what ``StandaloneSkill`` and its ``check`` raise, and what ``open`` and ``write_file``
    raise: an output that could not be opened again is not written.
    """
    with open_model(base) as file, StandaloneSkill(skill) as source:
        source.check(file, force=force)
        inputs = [path for path in (base, skill) if output.exists() and output.samefile(path)]
        if output.exists() and (not overwrite or inputs):
            raise UsageError("the output exists already", code="exists", path=str(output))
        replaced = [name for name in file if name in source.shapes]
        added = [name for name in source.shapes if name not in file]
        own = {spec.name: spec for spec in source.specs(file, {name: name for name in (*replaced, *added)})}
        kept = {spec.name: spec for spec in carried(file, progress, without=replaced)}
        names = [name for name in file if name in own or name in kept]
        masks, vocab, index = (file.section(name) for name in ("masks", "vocab", "index"))
        if source.file.section("masks") is not None:
            masks, index = source.file.section("masks"), None
        specs = [own.get(name) or kept[name] for name in (*names, *added)]
        write_file(output, _header(file, source.file), specs, masks=masks, vocab=vocab, index=index)
    return SkillApplied(len(replaced), len(added))


def _header(base: File, skill: File) -> dict[str, Any]:
    ours, theirs = skill.header.to_dict(), base.header.to_dict()
    fields = {name: value for name, value in ours.items() if name not in _OF_THE_FILE}
    for name in _FROM_THE_BASE:
        if fields.get(name) is None and theirs.get(name) is not None:
            fields[name] = theirs[name]
    return fields
