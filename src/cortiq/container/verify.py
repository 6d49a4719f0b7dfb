"""Verifying a CMF file: every hash, the content rules of every tensor, and what the other bytes are (SPEC 8, 8.1).

hash64 finds damage. It proves neither who wrote a file nor that nobody chose its bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cortiq.container.blob_layout import is_zero
from cortiq.container.extents import gaps
from cortiq.container.features import features_of
from cortiq.container.file import File
from cortiq.container.hashing import hash64
from cortiq.container.header import HASHED_SECTIONS
from cortiq.container.names import same_after_normalization
from cortiq.container.parallel_hash import hash_all
from cortiq.container.records_table import record_offset
from cortiq.container.tensor import Tensor
from cortiq.container.tensor_checks import overlapping
from cortiq.errors import Bounds, CortiqError, HashMismatch, Parse, UsageError
from cortiq.layouts import layout

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What verifying found.

    ``checked``   hashes compared: header, directory, sections, tensors
    ``unhashed``  sections that carry no hash
    ``problems``  what makes the file bad
    ``warnings``  what is odd but allowed; with ``strict`` these are problems
    ``bytes``     bytes of sections and tensors
    ``padding``   zero bytes between them
    ``dead``      bytes that belong to nothing
    """

    checked: int
    unhashed: tuple[str, ...]
    problems: tuple[CortiqError, ...]
    warnings: tuple[CortiqError, ...]
    bytes: int
    padding: int
    dead: int
    seconds: float

    @property
    def ok(self) -> bool:
        """True when there is no problem. Unhashed sections and warnings are none."""
        return not self.problems

    def raise_first(self) -> None:
        """Raise the first problem, if there is one."""
        if self.problems:
            raise self.problems[0]


def verify(
    file: File,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    strict: bool = False,
    require_hashes: bool = False,
) -> Report:
    """Read the whole file and compare.

    ``progress`` is called in the calling thread with the bytes done and all bytes. ``require_hashes`` makes an
    unhashed section a problem. Raises Changed.file when somebody wrote to the file since it was opened, and
    UsageError.threads.
    """
    if threads is not None and threads < 1:
        raise UsageError("the number of threads must be at least 1", code="threads", found=threads)
    start = time.perf_counter()
    file.mapping.check_unchanged()
    run = _Run(file, threads or len(os.sched_getaffinity(0)), progress)
    run.sections()
    run.tensors()
    run.leftovers()
    run.oddities()
    file.mapping.check_unchanged()
    if require_hashes:
        run.problems += [_unhashed(file, name) for name in run.unhashed]
    if strict:
        run.problems += run.warnings
        run.warnings = []
    for error in (*run.problems, *run.warnings):
        error.path = error.path or str(file.path)
    return Report(
        checked=run.checked,
        unhashed=tuple(run.unhashed),
        problems=tuple(run.problems),
        warnings=tuple(run.warnings),
        bytes=run.done,
        padding=run.padding,
        dead=run.dead,
        seconds=time.perf_counter() - start,
    )


@dataclass(slots=True)
class _Run:
    """One verification under way."""

    file: File
    threads: int
    progress: Progress | None
    checked: int = 0
    done: int = 0
    padding: int = 0
    dead: int = 0
    unhashed: list[str] = field(default_factory=list)
    problems: list[CortiqError] = field(default_factory=list)
    warnings: list[CortiqError] = field(default_factory=list)
    total: int = 0

    def sections(self) -> None:
        """Header and directory against the envelope, masks, vocab and index against the header."""
        envelope, stated = self.file.envelope, self.file.header.section_hashes
        stored = {"header": envelope.header_hash, "directory": envelope.directory_hash}
        stored |= {name: stated.get(name, 0) for name in HASHED_SECTIONS if envelope.section(name).nbytes}
        self.total = sum(envelope.section(name).nbytes for name in stored)
        self.total += sum(self.file.tensors.table.column("nbytes").tolist())
        for name, digest in stored.items():
            part = envelope.section(name)
            if digest == 0:
                self.unhashed.append(name)
            else:
                self._compare(name, None, part.offset, (digest, hash64(self.file.view(part), self.threads)))
            self._advance(part.nbytes)
        for name in sorted(stated.keys() - stored.keys()):
            self._warn("the header states a hash of an absent section", "section_hash_stale", "none", name)

    def tensors(self) -> None:
        """Every payload against its record, and against the content rules of its dtype."""
        table = self.file.tensors.table
        tensors = [self.file[name] for name in table.names]
        found = hash_all([tensor.raw for tensor in tensors], self.threads, self._advance)
        base = self.file.envelope.directory.offset
        for i, (tensor, digest) in enumerate(zip(tensors, found, strict=True)):
            if self._compare("data", tensor.name, record_offset(base, i), (tensor.entry.hash, digest)):
                self._check_content(tensor)

    def leftovers(self) -> None:
        """Zero gaps before something are padding; other bytes without an owner are dead."""
        for gap in gaps(self.file):
            anchored = gap.end < self.file.size or gap.end == self.file.envelope.data.offset
            if anchored and is_zero(self.file.view(gap)):
                self.padding += gap.nbytes
            else:
                self.dead += gap.nbytes
                self._warn("bytes that belong to nothing", "dead_bytes", 0, gap.nbytes, offset=gap.offset)

    def oddities(self) -> None:
        """Allowed by a reader, not by a careful writer."""
        file = self.file
        if file.envelope.flags:
            self._warn("the reserved flags are set", "flags", 0, f"{file.envelope.flags:#x}", offset=8)
        table = file.tensors.table
        for before, after in overlapping(table):
            self._warn(f"shares its bytes with {table.names[before]!r}", "alias", tensor=table.names[after])
        for first, second in same_after_normalization(table.names):
            self._warn(f"looks like {first!r}", "name_normalization", tensor=second)
        expected = features_of(
            set(table.column("dtype").tolist()),
            masks=file.envelope.masks.nbytes > 0,
            loops=file.arch.num_loops,
            skill_file=file.header.is_skill_file,
        )
        bits = file.envelope.features
        if expected != bits:
            message = "the feature bits contradict the content"
            self._warn(message, "feature_bits", f"{int(expected):#x}", f"{bits:#x}", offset=12)
        self._check_envelope()
        self._check_hash_digits()

    def _check_envelope(self) -> None:
        """Numbers nothing depends on, which no hash covers."""
        envelope, table = self.file.envelope, self.file.tensors.table
        for position, name in enumerate(HASHED_SECTIONS):
            part = envelope.section(name)
            if part.offset and not part.nbytes:
                at = 0x40 + 16 * position
                self._warn(f"the absent section {name} has an offset", "absent_with_offset", 0, part.offset, offset=at)
        end = max((table.column("off") + table.column("nbytes")).tolist(), default=0)
        if end != envelope.data.nbytes:
            message = "the data section does not end with its last tensor"
            self._warn(message, "data_len", end, envelope.data.nbytes, offset=0x38)

    def _check_hash_digits(self) -> None:
        for name, digits in (self.file.header.get("section_hashes") or {}).items():
            if name in HASHED_SECTIONS and (len(digits) != 16 or digits != digits.lower()):
                self._warn(f"the hash of {name} is not 16 lowercase digits", "section_hash_digits", found=digits)

    def _warn(
        self,
        message: str,
        code: str,
        expected: object = None,
        found: object = None,
        *,
        offset: int | None = None,
        tensor: str | None = None,
    ) -> None:
        self.warnings.append(Parse(message, code=code, offset=offset, tensor=tensor, expected=expected, found=found))

    def _advance(self, nbytes: int) -> None:
        self.done += nbytes
        if self.progress is not None and nbytes:
            self.progress(self.done, self.total)

    def _compare(self, section: str, tensor: str | None, offset: int, digests: tuple[int, int]) -> bool:
        stored, found = digests
        self.checked += 1
        if stored == found:
            return True
        self.problems.append(
            HashMismatch(
                "damaged: the bytes do not match their hash",
                code="tensor" if tensor is not None else section,
                section=section,
                tensor=tensor,
                offset=offset,
                expected=f"{stored:016x}",
                found=f"{found:016x}",
            )
        )
        return False

    def _check_content(self, tensor: Tensor) -> None:
        try:
            layout(tensor.entry.dtype).validate(tensor.raw, tensor.entry.shape)
        except (Parse, Bounds) as error:
            error.section, error.tensor = "data", tensor.name
            error.offset = self.file.envelope.data.offset + tensor.entry.off
            self.problems.append(error)


def _unhashed(file: File, name: str) -> HashMismatch:
    return HashMismatch(
        f"the section {name} carries no hash",
        code="absent",
        section=name,
        offset=file.envelope.section(name).offset,
        expected="a hash",
        found="none",
    )
