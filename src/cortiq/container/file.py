"""An open CMF file, or set of files (SPEC 1-10): sections, tensors, tokenizer, masks, skills. Immutable; read where it
is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from cortiq.container.arch import Arch
from cortiq.container.directory import Directory
from cortiq.container.envelope import Envelope, Range
from cortiq.container.hashing import hash64
from cortiq.container.header import HASHED_SECTIONS, Header
from cortiq.container.location import check_local
from cortiq.container.mapping import FileBytes
from cortiq.container.mask_meta import MaskMeta
from cortiq.container.masks import MaskSet, decode_masks
from cortiq.container.skills import Skills
from cortiq.container.sparse_index import SparseIndex, parse_sparse_index
from cortiq.container.strict_json import thaw
from cortiq.container.tensor import Tensor, TensorEntry
from cortiq.errors import CortiqError, Limit, MissingTensor

MAX_VOCAB = 2**28


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A valid CMF file, mapped or remote. A context manager; ``file["name"]`` is a tensor, iteration gives the names.

    A set of files is its first one with the tensors of all. What is about single bytes, such as ``envelope`` and
    ``mapping``, is that of file 1; what is about tensors asks the file each is in.

    ``path``       as it was given; of a remote file its URL, a str without what may be secret in it
    ``envelope``   where the sections are
    ``header``     the header JSON, read-only
    ``tensors``    entries by name in directory order, read-only
    ``mapping``    the bytes
    ``mask_meta``  what the masks section says of its masks, None without one
    ``parts``      the files of a set in order, empty for a single file
    """

    path: Path | str
    envelope: Envelope
    header: Header
    tensors: Directory
    mapping: FileBytes
    mask_meta: MaskMeta | None = None
    parts: tuple[File, ...] = ()
    _read: dict[str, Any] = field(default_factory=dict)

    @property
    def local_path(self) -> Path:
        """Where the file is on this machine. Raises UsageError.remote for one that is elsewhere."""
        check_local(self.path, "this")
        return Path(self.path)

    @property
    def name(self) -> str:
        """The last part of ``path``."""
        return os.path.basename(self.path)

    @property
    def size(self) -> int:
        """Bytes of the file, or of all files of the set, when it was opened."""
        return sum(part.mapping.size for part in self.parts) if self.parts else self.mapping.size

    @property
    def arch(self) -> Arch:
        """What the model is."""
        return self.header.arch

    @property
    def dir_hash(self) -> int:
        """hash64 of the directory as the envelope states it; 0 when the file carries none (SPEC 8.1).

        Of a set, that of the merged directory.
        """
        return hash64(self.tensors.raw) if self.parts else self.envelope.directory_hash

    @property
    def section_hashes(self) -> dict[str, int]:
        """The stored hash64 of every section there is but the blob, header and directory first; 0 means unhashed."""
        stored = {"header": self.envelope.header_hash, "directory": self.envelope.directory_hash}
        names = [name for name in HASHED_SECTIONS if self.envelope.section(name).nbytes]
        return stored | {name: self.header.section_hashes.get(name, 0) for name in names}

    @property
    def tokenizer_json(self) -> bytes | None:
        """The tokenizer section, verbatim (SPEC 6). Raises Limit.vocab beyond 256 MiB."""
        part = self.envelope.vocab
        if part.nbytes == 0:
            return None
        if part.nbytes > MAX_VOCAB:
            raise Limit(
                "the tokenizer section is larger than the reader accepts",
                code="vocab",
                path=str(self.path),
                section="vocab",
                offset=part.offset,
                expected=f"at most {MAX_VOCAB}",
                found=part.nbytes,
            )
        return bytes(self.view(part))

    @property
    def tokenizer_config(self) -> dict[str, Any] | None:
        """A copy of the header's chat bundle (SPEC 6.1)."""
        return self._block("tokenizer_config")

    @property
    def generation(self) -> dict[str, Any] | None:
        """A copy of the header's ``generation_config``: sampling defaults of the model's makers, when stated."""
        return self._block("generation_config")

    @property
    def masks(self) -> MaskSet | None:
        """The task masks by name (SPEC 5), None without the section. Their bits are decoded when they are used."""
        if self.mask_meta is None:
            return None
        if "masks" not in self._read:
            part = self.envelope.masks
            self._read["masks"] = decode_masks(self.view(part), self.mask_meta, part.offset)
        masks: MaskSet = self._read["masks"]
        return masks

    @property
    def sparse_index(self) -> SparseIndex | None:
        """The sparse index (SPEC 7), None without the section. Raises Bounds.index for one that cannot be read."""
        part = self.envelope.index
        if part.nbytes == 0:
            return None
        if "index" not in self._read:
            try:
                self._read["index"] = parse_sparse_index(self.view(part), part.offset)
            except CortiqError as error:
                error.path = str(self.path)
                raise
        index: SparseIndex = self._read["index"]
        return index

    @property
    def skills(self) -> Skills:
        """The skills by id, and the tensors each replaces (SPEC 9). Empty for a flat backbone."""
        if "skills" not in self._read:
            self._read["skills"] = Skills.of(self.header.skills, self.tensors)
        skills: Skills = self._read["skills"]
        return skills

    def resolve(self, name: str, skill: str | None = None) -> TensorEntry:
        """The entry to read where the model says ``name``: that of ``skill`` where it replaces it (SPEC 9).

        Raises MissingTensor, UsageError.skill for an unknown skill, Parse.skill_shape for a replacement that does not
        fit.
        """
        try:
            return self.skills.resolve(name, skill)
        except CortiqError as error:
            error.path = error.path or str(self.path)
            raise

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called ``name``. Raises MissingTensor."""
        if name not in self.tensors:
            raise MissingTensor("no such tensor", code="name", path=str(self.path), tensor=name)
        entry, home = self.tensors[name], self.home(name)
        return Tensor(entry, home.mapping.view(home.envelope.data.offset + entry.off, entry.nbytes))

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def view(self, part: Range) -> memoryview:
        """Read-only view of a range of the file. Raises UsageError.closed."""
        return self.mapping.view(part.offset, part.nbytes)

    def section(self, name: str) -> memoryview | None:
        """Bytes of ``header``, ``directory``, ``data``, ``masks``, ``vocab`` or ``index``; None when it is absent."""
        part = self.envelope.section(name)
        return self.view(part) if part.nbytes else None

    def home(self, name: str) -> File:
        """The file that holds the tensor ``name``: this one, or one of its set."""
        if not self.parts:
            return self
        if "homes" not in self._read:
            self._read["homes"] = {other: part for part in self.parts for other in part.tensors}
        home: File = self._read["homes"][name]
        return home

    def address(self, entry: TensorEntry) -> int:
        """Where the bytes of a tensor of this file are in memory, for native views. Keep the file alive meanwhile.

        Raises UsageError.remote for a remote file.
        """
        home = self.home(entry.name)
        return home.mapping.address + home.envelope.data.offset + entry.off

    def map_end(self, entry: TensorEntry) -> int:
        """Address after the last byte in memory of the file that holds a tensor."""
        home = self.home(entry.name)
        return home.mapping.address + home.mapping.size

    def release(self, entry: TensorEntry, offset: int, nbytes: int) -> None:
        """Drop the whole pages of a range of a tensor from memory; they come back from disk when touched again."""
        home = self.home(entry.name)
        home.mapping.release(home.envelope.data.offset + entry.off + offset, nbytes)

    def check_usable(self) -> None:
        """Raise Changed.file, naming the file, when the bytes that were mapped are no longer its own."""
        for part in self.parts or (self,):
            try:
                part.mapping.check_usable()
            except CortiqError as error:
                error.path = error.path or str(part.path)
                raise

    @property
    def closed(self) -> bool:
        return self.mapping.closed

    def close(self) -> None:
        """Give the mapping back once the views of it are gone; views taken before stay valid."""
        self._read.clear()
        self.mapping.close()
        for part in self.parts:
            part.close()

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"File({str(self.path)!r}, {self.arch.arch_name}, {len(self.tensors)} tensors, {self.size} bytes)"

    def _block(self, name: str) -> dict[str, Any] | None:
        value = self.header.get(name)
        if value is None:
            return None
        block: dict[str, Any] = thaw(value)
        return block
