"""A folder with a skill (SPEC 9, 11): what a training recipe leaves behind.

    skill.json                the registry record; without it the skill has no more than an id
    tensors/NAME.npy          float weights under the name of the tensor they replace
    *.safetensors             the same, several in a file
    ffn_keep.npy              which neurons are alive; not used: the weights of the others are zero

Weights are encoded in the dtype of what they replace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container import File, TensorSpec
from cortiq.convert.encode import EncodePool
from cortiq.convert.families import TensorRule
from cortiq.convert.json_file import optional_json
from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned, with_sizes
from cortiq.convert.source import Block, SourceTensor
from cortiq.convert.sources.safetensors_file import SafetensorsFile
from cortiq.edit.skill_source import SkillSource
from cortiq.errors import Parse, SourceError
from cortiq.layouts import layout
from cortiq.layouts.sizes import rows_and_cols

_RECORD = "skill.json"
_KEEP = "ffn_keep.npy"
_FLOATS = ("<f2", "<f4", "<f8")


class FolderSkill(SkillSource):
    """The skill in the folder ``path``.

    Raises SourceError: ``json`` and ``skill_record`` for its record, ``npy`` and ``safetensors`` for a file that cannot
    be read, ``dtype`` and ``shape`` for weights that are no floats or of a kind it does not read, ``duplicate`` for a
    tensor that is there twice, ``no_tensors``.
    """

    def __init__(self, path: Path, *, threads: int = 1, progress: Progress | None = None) -> None:
        self.path = path
        self.record = _read_record(path)
        self._options = ConvertOptions(threads=threads)
        self._progress = progress
        self._stack = ExitStack()
        try:
            self._tensors = self._open()
        except BaseException:
            self.close()
            raise
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self.notes = (f"{_KEEP} is not used: the weights say it",) if (path / _KEEP).exists() else ()

    def check(self, base: File, *, force: bool) -> None:
        """A folder is bound to no base: shapes alone decide."""

    def specs(self, base: File, names: Mapping[str, str]) -> Sequence[TensorSpec]:
        """Raises Parse.u8 for a tensor that holds bytes, NonFinite while payloads are consumed, NativeMissing."""
        planned = []
        for name in names:
            kind = layout(base.tensors[name].dtype)
            if kind.name == "u8":
                raise Parse("the tensor to be replaced holds bytes, no weights", code="u8", tensor=name)
            planned.append(Planned(self._tensors[name], kind.name, kind.payload_nbytes(self.shapes[name])))
        planned = with_sizes(planned, self._options)
        pool = self._stack.enter_context(EncodePool(planned, self._options, self._progress))
        return [
            TensorSpec(names[p.tensor.name], layout(p.dtype).id, p.tensor.shape, p.nbytes, pool.chunks(p))
            for p in planned
        ]

    def close(self) -> None:
        self._stack.close()

    def _open(self) -> dict[str, SourceTensor]:
        """All tensors by name, those of ``tensors`` first."""
        found: dict[str, SourceTensor] = {}
        for name, tensor in [*self._arrays(), *self._safetensors()]:
            if name in found:
                raise SourceError("a tensor is there twice", code="duplicate", path=str(self.path), tensor=name)
            if 0 in tensor.shape:
                raise SourceError("a tensor is empty", code="shape", path=str(self.path), tensor=name)
            found[name] = tensor
        if not found:
            raise SourceError(
                "the folder has no weights",
                code="no_tensors",
                path=str(self.path),
                expected="tensors/NAME.npy or *.safetensors",
                found="neither",
            )
        return found

    def _arrays(self) -> Iterator[tuple[str, SourceTensor]]:
        for file in sorted((self.path / "tensors").glob("*.npy")):
            yield file.name.removesuffix(".npy"), _ArrayTensor(file.name.removesuffix(".npy"), _read_array(file))

    def _safetensors(self) -> Iterator[tuple[str, SourceTensor]]:
        for path in sorted(self.path.glob("*.safetensors")):
            file = SafetensorsFile(path)
            self._stack.callback(file.close)
            for name, record in file.records.items():
                if len(record.shape) not in (1, 2):
                    raise SourceError(
                        "only vectors and matrices are read from safetensors files",
                        code="shape",
                        path=str(path),
                        tensor=name,
                        expected="1 or 2 dimensions",
                        found=list(record.shape),
                    )
                yield name, file.tensor(name, name, TensorRule(name, "", ""))


class _ArrayTensor(SourceTensor):
    __slots__ = ("_values",)

    def __init__(self, name: str, values: NDArray[Any]) -> None:
        super().__init__(name, name, values.shape, values.nbytes, TensorRule(name, "", ""))
        self._values = values.reshape(rows_and_cols(values.shape))

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return rows_and_cols(self.shape)

    def read(self, first: int, last: int) -> Block:
        rows = self._values[first:last]
        with np.errstate(over="ignore"):  # what f32 cannot hold becomes infinite, which no encoder accepts
            return rows.astype(np.float32) if rows.dtype == np.float64 else np.ascontiguousarray(rows)

    def release(self, first: int, last: int) -> None:
        """Nothing: the arrays of a skill are small."""


def _read_record(folder: Path) -> dict[str, Any]:
    record = optional_json(folder / _RECORD)
    for key, wrong in (("id", not isinstance(record.get("id", ""), str)), ("base_dir_hash", "base_dir_hash" in record)):
        if wrong:
            raise SourceError(
                "the record of the skill is not valid",
                code="skill_record",
                path=str(folder / _RECORD),
                expected="a string" if key == "id" else "none: only a skill file is bound to a base",
                found=f"{key} {record[key]!r}"[:80],
            )
    return record


def _read_array(path: Path) -> NDArray[Any]:
    try:
        values: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, OverflowError) as error:
        raise SourceError(f"{path.name} cannot be read: {error}", code="npy", path=str(path)) from error
    if values.dtype.str not in _FLOATS:
        raise SourceError(
            "weights of this element type cannot be read",
            code="dtype",
            path=str(path),
            expected=", ".join(np.dtype(kind).name for kind in _FLOATS),
            found=values.dtype,
        )
    return values
