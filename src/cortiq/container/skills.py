"""The skills of a file: records by id, and which tensors each puts in the place of the backbone's (SPEC 9).

``skill.{id}.{name}`` replaces ``name`` with its full shape, in any dtype. The directory alone decides what a skill
replaces; a record without tensors replaces nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cortiq.container.skill_records import Skill
from cortiq.container.tensor import TensorEntry
from cortiq.errors import MissingTensor, Parse, UsageError

PREFIX = "skill."
_NONE: Mapping[str, str] = MappingProxyType({})


def split_name(tensor: str) -> tuple[str, str] | None:
    """(id, replaced name) of ``skill.{id}.{name}``, None for any other name."""
    if not tensor.startswith(PREFIX):
        return None
    skill_id, dot, name = tensor[len(PREFIX) :].partition(".")
    return (skill_id, name) if skill_id and dot and name else None


@dataclass(frozen=True, slots=True, eq=False)
class Skills(Mapping[str, Skill]):
    """The registered skills by id, in the order of the header.

    ``tensors`` is the directory; ``replaced`` gives for every id with tensors, registered or not, the names it
    replaces and the tensors it puts there.
    """

    tensors: Mapping[str, TensorEntry]
    records: Mapping[str, Skill]
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, skills: tuple[Skill, ...], tensors: Mapping[str, TensorEntry]) -> Skills:
        """The skills of a file with this registry and these tensors."""
        replaced: dict[str, dict[str, str]] = {}
        for name in tensors:
            parts = split_name(name)
            if parts is not None:
                replaced.setdefault(parts[0], {})[parts[1]] = name
        return cls(tensors, MappingProxyType({skill.id: skill for skill in skills}), replaced)

    @property
    def ids(self) -> tuple[str, ...]:
        """Everything that can be chosen: registered ids, then ids that only tensors have."""
        return (*self.records, *(skill_id for skill_id in self.replaced if skill_id not in self.records))

    def entries(self, skill_id: str) -> dict[str, TensorEntry]:
        """The tensors of a skill by the name each replaces. Raises UsageError.skill."""
        self.check_id(skill_id)
        return {name: self.tensors[own] for name, own in self.replaced.get(skill_id, _NONE).items()}

    def resolve(self, name: str, skill_id: str | None) -> TensorEntry:
        """The tensor to read where the model says ``name``: the skill's where it has one, else the backbone's.

        Raises UsageError.skill for an id nobody has, MissingTensor for a name the backbone lacks, Parse.skill_shape for
        a replacement of another shape.
        """
        if skill_id is not None:
            self.check_id(skill_id)
        if name not in self.tensors:
            raise MissingTensor("no such tensor", code="name", tensor=name)
        entry = self.tensors[name]
        own = self.replaced.get(skill_id, _NONE).get(name) if skill_id is not None else None
        if own is None:
            return entry
        problem = shape_problem(self.tensors[own], entry)
        if problem is not None:
            raise problem
        return self.tensors[own]

    def check_id(self, skill_id: str) -> None:
        """Raises UsageError.skill listing the skills there are."""
        if skill_id not in self.records and skill_id not in self.replaced:
            raise UsageError(
                "the file has no such skill",
                code="skill",
                expected=f"one of {', '.join(self.ids)}" if self.ids else "a file with skills",
                found=skill_id,
            )

    def __getitem__(self, skill_id: str) -> Skill:
        return self.records[skill_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"Skills({', '.join(self.ids)})"


def shape_problem(own: TensorEntry, replaced: TensorEntry) -> Parse | None:
    """Parse.skill_shape when a skill's tensor has another shape than the one it replaces."""
    if own.shape == replaced.shape:
        return None
    return Parse(
        f"the skill's tensor has another shape than {replaced.name!r}",
        code="skill_shape",
        section="directory",
        tensor=own.name,
        expected=list(replaced.shape),
        found=list(own.shape),
    )
