"""Where a skill to be added comes from, as far as adding it is concerned (SPEC 9, 9.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cortiq.container import File, Mask, TensorSpec, check_base, open_single, skill_file
from cortiq.container.digest import covered
from cortiq.container.strict_json import thaw
from cortiq.errors import BaseMismatch, CortiqError


class SkillSource(ABC):
    """A skill outside of the file it is added to. A context manager.

    ``path``    its file or folder
    ``record``  its registry record, bound to no base
    ``shapes``  of its tensors, by the names they replace
    ``mask``    the task mask it is used under, None when nothing is masked
    ``notes``   what of it is not used
    """

    path: Path
    record: dict[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    mask: Mask | None = None
    notes: tuple[str, ...] = ()

    @abstractmethod
    def check(self, base: File, *, force: bool) -> None:
        """Raises BaseMismatch when the skill was cut against another file than ``base``, unless ``force``."""

    @abstractmethod
    def specs(self, base: File, names: Mapping[str, str]) -> Sequence[TensorSpec]:
        """Its tensors under the new ``names`` they get, in that order, for a file with the backbone of ``base``.

        The payloads must be consumed in order, before the source is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back that is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StandaloneSkill(SkillSource):
    """A skill file (SPEC 9.1), ``file``; its tensors are taken over byte for byte, each checked against its hash.

    Raises what ``open_single`` raises and UsageError.no_skill_file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = open_single(path)
        try:
            self._skill = skill_file(self.file)
        except BaseException:
            self.close()
            raise
        record = next(r for r in self.file.header["skills"] if r.get("id") == self._skill.skill.id)
        bound = {"base_dir_hash", "task"}  # what a file of its own needs: the base, and a mask in that file
        self.record = {key: thaw(value) for key, value in record.items() if key not in bound}
        self.shapes = {name: self.file.tensors[name].shape for name in covered(self.file)}
        masks = self.file.masks
        mask = masks.get(self._skill.skill.task or masks.default_task) if masks else None
        self.mask = None if mask is None or mask.is_open else mask

    def check(self, base: File, *, force: bool) -> None:
        """Raises as ``check_base``."""
        try:
            check_base(self._skill, base)
        except BaseMismatch as error:
            if not force:
                error.message += "; --force takes it all the same"
                raise

    def specs(self, base: File, names: Mapping[str, str]) -> Sequence[TensorSpec]:
        """The payloads as they are. Raises Parse and Bounds for content that cannot be decoded, and HashMismatch.tensor
        while they are consumed.
        """
        made = []
        for name, own in names.items():
            tensor = self.file[name]
            try:
                tensor.validate()
            except CortiqError as error:
                error.path, error.tensor = str(self.path), name
                raise
            entry = tensor.entry
            made.append(TensorSpec(own, entry.dtype, entry.shape, entry.nbytes, (tensor.raw,), entry.hash or None))
        return made

    def close(self) -> None:
        self.file.close()
