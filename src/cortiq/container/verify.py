"""Verifying a CMF file: every hash, the content rules of every tensor, and what the other bytes are (SPEC 8, 8.1).

hash64 finds damage, but not words or blocks that changed places; a file that carries SHA-256 digests is held to them
too. Neither proves who wrote a file: a signature does (``cortiq.container.signature``).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cortiq.container.blob_layout import is_zero
from cortiq.container.digest import Digests, read_digests
from cortiq.container.extents import gaps
from cortiq.container.file import File
from cortiq.container.finding import Check, Finding, odd
from cortiq.container.hashing import hash64
from cortiq.container.location import check_local
from cortiq.container.parallel_hash import hash_all, hash_all_strong
from cortiq.container.records_table import record_offset
from cortiq.container.section_checks import check_skills
from cortiq.container.tensor import Tensor
from cortiq.container.verify_checks import CONTENT_CHECKS, METADATA_CHECKS
from cortiq.errors import Bounds, CortiqError, HashMismatch, Parse, UnsupportedFeature, UsageError
from cortiq.layouts import layout

Progress = Callable[[int, int], None]
Level = Literal["quick", "full", "deep"]
LEVELS: tuple[Level, ...] = ("quick", "full")
_QUICK = ("header", "directory")


@dataclass(frozen=True, slots=True)
class Report:
    """What verifying found.

    ``level``     quick: what opening a file checks, and envelope, header and directory against each other;
                  full: also every hash, every payload against the rules of its dtype, and what lies between;
                  deep: also further checks
    ``files``     how many were verified: all of a set
    ``checked``   hashes compared: header, directory, sections, tensors
    ``digests``   SHA-256 digests compared; None when the file carries none that could be
    ``unhashed``  sections that carry no hash
    ``problems``  what makes the file bad
    ``warnings``  what is odd but allowed; with ``strict`` these are problems
    ``bytes``     bytes of sections and tensors that were hashed
    ``padding``   zero bytes between them
    ``dead``      bytes that belong to nothing
    """

    level: Level
    files: int
    checked: int
    digests: int | None
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
    level: Level = "full",
    threads: int | None = None,
    progress: Progress | None = None,
    strict: bool = False,
    require_hashes: bool = False,
    checks: Sequence[Check] = (),
) -> Report:
    """Compare a file with what it says of itself; ``full`` reads all of it, ``quick`` no more than opening did.

    Of a set every file is verified, and what can only be told of all together.

    ``progress`` is called in the calling thread with the bytes done and all bytes. ``require_hashes`` makes an
    unhashed section a problem. ``checks`` are run behind the full level and make it deep. Raises Changed.file when
    the file was rewritten or shrank since it was opened; what was appended since is not looked at. Raises
    UsageError.threads, UsageError.level, and UsageError.remote for more than
    ``quick`` of a remote file.
    """
    if threads is not None and threads < 1:
        raise UsageError("the number of threads must be at least 1", code="threads", found=threads)
    if level not in LEVELS or (checks and level == "quick"):
        expected = "full when there are further checks" if checks else " or ".join(LEVELS)
        raise UsageError("unknown level of verifying", code="level", expected=expected, found=level)
    if level != "quick":
        check_local(file.path, "verifying all of a file")
    start = time.perf_counter()
    file.check_usable()
    runs = [_Run(part, threads or len(os.sched_getaffinity(0)), level) for part in file.parts or (file,)]
    total, before = sum(run.total for run in runs), 0
    for run in runs:
        run.progress = _behind(before, total, progress)
        run.full(checks) if level == "full" else run.quick()
        before += run.total
        if require_hashes:
            run.problems += [_unhashed(run.file, name) for name in run.unhashed]
    if file.parts and level == "full":
        runs[0].collect_new(check_skills(file), runs)
    file.check_usable()
    return _report(runs, "deep" if checks else level, strict, time.perf_counter() - start)


def _behind(before: int, total: int, progress: Progress | None) -> Callable[[int], None]:
    """Tells of bytes done behind ``before`` others, of ``total``."""

    def advanced(done: int) -> None:
        if progress is not None:
            progress(before + done, total)

    return advanced


def _report(runs: Sequence[_Run], level: Level, strict: bool, seconds: float) -> Report:
    for run in runs:
        if strict:
            run.problems += run.warnings
            run.warnings = []
        for error in (*run.problems, *run.warnings):
            error.path = error.path or str(run.file.path)
    where = {run.file.path: f"{run.file.name}: " if len(runs) > 1 else "" for run in runs}
    digests = [run.digests_checked for run in runs]
    known = [count for count in digests if count is not None]
    return Report(
        level=level,
        files=len(runs),
        checked=sum(run.checked for run in runs),
        digests=sum(known) if len(known) == len(digests) else None,
        unhashed=tuple(where[run.file.path] + name for run in runs for name in run.unhashed),
        problems=tuple(problem for run in runs for problem in run.problems),
        warnings=tuple(warning for run in runs for warning in run.warnings),
        bytes=sum(run.done for run in runs),
        padding=sum(run.padding for run in runs),
        dead=sum(run.dead for run in runs),
        seconds=seconds,
    )


@dataclass(slots=True)
class _Run:
    """The verification of one file under way."""

    file: File
    threads: int
    level: Level
    progress: Callable[[int], None] = field(default=lambda done: None)
    checked: int = 0
    digests_checked: int | None = None
    done: int = 0
    padding: int = 0
    dead: int = 0
    unhashed: list[str] = field(default_factory=list)
    problems: list[CortiqError] = field(default_factory=list)
    warnings: list[CortiqError] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes that will be hashed."""
        names = _QUICK if self.level == "quick" else tuple(self.file.section_hashes)
        blob = 0 if self.level == "quick" else sum(self.file.tensors.table.column("nbytes").tolist())
        return blob + sum(self.file.envelope.section(name).nbytes for name in names)

    def quick(self) -> None:
        """Header and directory again, and what they say against each other. No byte of the blob is read."""
        names = _QUICK
        self._hash_sections(names, None)
        self.unhashed += [
            name for name, digest in self.file.section_hashes.items() if digest == 0 and name not in names
        ]
        for check in METADATA_CHECKS:
            self._collect(check(self.file))

    def full(self, checks: Sequence[Check]) -> None:
        """Everything there is, then ``checks``."""
        digests = self._digests()
        self._hash_sections(tuple(self.file.section_hashes), digests)
        self._hash_tensors(digests)
        self._leftovers()
        for check in (*METADATA_CHECKS, *CONTENT_CHECKS, *checks):
            self._collect(check(self.file))

    def _digests(self) -> Digests | None:
        """The strong digests, when the file carries some that can be compared."""
        try:
            found = read_digests(self.file)
        except Parse as error:
            self.problems.append(error)
            return None
        except UnsupportedFeature as error:
            self.warnings.append(error)
            return None
        self.digests_checked = None if found is None else 0
        return found

    def _hash_sections(self, names: Iterable[str], digests: Digests | None) -> None:
        stored = self.file.section_hashes
        for name in names:
            part = self.file.envelope.section(name)
            view = self.file.view(part)
            if stored[name] == 0:
                self.unhashed.append(name)
            else:
                self._compare((name, None), part.offset, (stored[name], hash64(view, self.threads)))
            if digests is not None and name in digests.sections:
                found = hashlib.sha256(view).digest()
                self._compare_digest((name, None), part.offset, (digests.sections[name], found))
            self._advance(part.nbytes)
        gone = {} if digests is None else {n: d for n, d in digests.sections.items() if n not in stored}
        for name, digest in gone.items():
            self._damaged((name, None), self.file.envelope.header.offset, "digest", (digest.hex(), "no such section"))

    def _hash_tensors(self, digests: Digests | None) -> None:
        """Every payload against its record, its digest, and the content rules of its dtype."""
        table = self.file.tensors.table
        tensors = [self.file[name] for name in table.names]
        buffers = [tensor.raw for tensor in tensors]
        strong: list[bytes] = []
        if digests is None:
            weak = hash_all(buffers, self.threads, self._advance)
        else:
            weak, strong = hash_all_strong(buffers, self.threads, self._advance)
        base = self.file.envelope.directory.offset
        for i, tensor in enumerate(tensors):
            place, offset = ("data", tensor.name), record_offset(base, i)
            same = self._compare(place, offset, (tensor.entry.hash, weak[i]))
            if same and digests is not None and tensor.name in digests.tensors:
                at = self.file.envelope.data.offset + tensor.entry.off
                same = self._compare_digest(place, at, (digests.tensors[tensor.name], strong[i]))
            if same:
                self._check_content(tensor)

    def _leftovers(self) -> None:
        """Zero gaps before something are padding; other bytes without an owner are dead."""
        for gap in gaps(self.file):
            anchored = gap.end < self.file.size or gap.end == self.file.envelope.data.offset
            if anchored and is_zero(self.file.view(gap)):
                self.padding += gap.nbytes
            else:
                self.dead += gap.nbytes
                self._collect([odd("bytes that belong to nothing", "dead_bytes", 0, gap.nbytes, offset=gap.offset)])

    def collect_new(self, findings: Iterable[Finding], runs: Sequence[_Run]) -> None:
        """Take up what none of ``runs`` has found."""
        known = {_facts(error) for run in runs for error in (*run.problems, *run.warnings)}
        self._collect(finding for finding in findings if _facts(finding.error) not in known)

    def _collect(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            (self.problems if finding.problem else self.warnings).append(finding.error)

    def _advance(self, nbytes: int) -> None:
        self.done += nbytes
        if nbytes:
            self.progress(self.done)

    def _compare(self, place: tuple[str, str | None], offset: int, hashes: tuple[int, int]) -> bool:
        """Stored and found hash64 of a section, or of a tensor."""
        self.checked += 1
        if hashes[0] == hashes[1]:
            return True
        code = place[0] if place[1] is None else "tensor"
        self._damaged(place, offset, code, (f"{hashes[0]:016x}", f"{hashes[1]:016x}"))
        return False

    def _compare_digest(self, place: tuple[str, str | None], offset: int, digests: tuple[bytes, bytes]) -> bool:
        self.digests_checked = (self.digests_checked or 0) + 1
        if digests[0] == digests[1]:
            return True
        self._damaged(place, offset, "digest", (digests[0].hex(), digests[1].hex()))
        return False

    def _damaged(self, place: tuple[str, str | None], offset: int, code: str, digits: tuple[str, str]) -> None:
        what = "digest" if code == "digest" else "hash"
        self.problems.append(
            HashMismatch(
                f"damaged: the bytes do not match their {what}",
                code=code,
                section=place[0],
                tensor=place[1],
                offset=offset,
                expected=digits[0],
                found=digits[1],
            )
        )

    def _check_content(self, tensor: Tensor) -> None:
        kind, offset = layout(tensor.entry.dtype), self.file.envelope.data.offset + tensor.entry.off
        try:
            kind.validate(tensor.raw, tensor.entry.shape)
        except (Parse, Bounds) as error:
            error.section, error.tensor, error.offset = "data", tensor.name, offset
            self.problems.append(error)
            return
        for oddity in kind.oddities(tensor.raw, tensor.entry.shape):
            oddity.section, oddity.tensor, oddity.offset = "data", tensor.name, offset
            self.warnings.append(oddity)


def _facts(error: CortiqError) -> tuple[str, str | None, str]:
    return error.kind, error.tensor, error.message


def _unhashed(file: File, name: str) -> HashMismatch:
    return HashMismatch(
        f"the section {name} carries no hash",
        code="absent",
        section=name,
        offset=file.envelope.section(name).offset,
        expected="a hash",
        found="none",
    )
