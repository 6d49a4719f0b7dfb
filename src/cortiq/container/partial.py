"""A file written in several attempts: what an interrupted one has done is kept, and the next goes on from there.

Beside the target lie ``.NAME.partial``, which becomes the target, and ``.NAME.partial.journal``. The first line of the
journal says what is made of what, as a JSON object of texts by name; every other line stands for one payload, in order:
its hash64 and its SHA-256, as 16 and 64 hexadecimal digits. A payload is on the disk before it has a line.

What lines say is not believed: payloads are read again, and those up to the first that has another SHA-256 are kept.
Everything else is zero before writing goes on, so that the finished file is the one an undisturbed attempt makes. The
lock of the journal keeps a second process away.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cortiq.container.digest_pool import DigestPool
from cortiq.container.envelope import Range
from cortiq.container.journal import Journal, open_own
from cortiq.container.output import AtomicFile
from cortiq.container.strict_json import dump_json
from cortiq.errors import Busy, CortiqError, UsageError

SAVE_EVERY = 1 << 26  # bytes written between two records: what a killed process does again at most
_LINE = re.compile(rb"([0-9a-f]{16}) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Kept:
    """A payload that an earlier attempt wrote: its hash64 and its SHA-256."""

    hash: int
    digest: bytes


class PartialFile(AtomicFile):
    """Writes ``path`` as a whole, in as many attempts as it takes. A context manager like its base.

    ``take_over`` comes before anything is written. Leaving it by an error of ours removes what was written, for the
    same input would end in the same error; any other exception keeps the payloads that were finished.

    Raises Busy.locked when another process is at it, UsageError.resume for a file that no attempt can have left, and as
    ``AtomicFile`` does.
    """

    kept: Sequence[Kept] = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._left = os.fstat(self.fd).st_size
        self._agreed = False
        self._recorded = 0
        self._hashes: list[int] = []
        self._unsaved = 0
        self._pool: DigestPool | None = None

    def take_over(self, facts: Mapping[str, str], payloads: Sequence[Range], size: int) -> None:
        """Find out what is ``kept`` of a file of ``size`` bytes with these payloads, and make room for the rest.

        ``facts`` are everything that decides about the bytes, by name. Raises UsageError.resume, naming the first that
        is not what the earlier attempt began with; nothing has been changed then.
        """
        lines = self._journal.texts if self._left else []
        stated = _parse_facts(lines[0]) if lines else None
        if stated is not None:
            self._check(stated, facts)
            self.kept = self._verified(lines[1:], payloads)
            self._journal.cut(1 + len(self.kept))
        self._clear(payloads[: len(self.kept)])
        self.allocate(size)
        if stated is None:
            self._journal.cut(0)
            self._journal.append([dump_json(facts)])
        self.disk.sync_dir(self.folder)
        self._hashes = [payload.hash for payload in self.kept]
        self._recorded = len(self.kept)
        self._agreed = True

    @contextmanager
    def following(self, pool: DigestPool) -> Iterator[None]:
        """Record what is ``finished`` in the meantime. ``pool`` takes the digests, those of ``kept`` included.

        Whatever interrupts it, all finished payloads are recorded, unless the system failed: then nobody knows what is
        on the disk.
        """
        self._pool = pool
        try:
            yield
        except (OSError, CortiqError):
            raise
        except BaseException:
            self._save()
            raise

    def finished(self, hash64: int, nbytes: int) -> None:
        """The next payload, of this hash and size, has been written and given to the pool."""
        self._hashes.append(hash64)
        self._unsaved += nbytes
        if self._unsaved >= SAVE_EVERY:
            self._save()

    def commit(self) -> None:
        super().commit()
        self._journal.remove()

    def discard(self) -> None:
        super().discard()
        self._journal.remove()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._agreed:
            keep = self._recorded > 0 and error is not None and not isinstance(error, CortiqError)
        else:
            keep = self._left > 0
        if keep and not self._published:
            self._close()
            self._journal.close()
        else:
            self.discard()

    def _open(self) -> tuple[Path, int]:
        self._journal = Journal(_journal_path(self.target))
        path = partial_path(self.target)
        try:
            return path, open_own(path)
        except BaseException:
            self._journal.close()
            raise

    def _check(self, stated: Mapping[str, str], facts: Mapping[str, str]) -> None:
        for name in dict.fromkeys([*facts, *stated]):
            if stated.get(name) != facts.get(name):
                raise UsageError(
                    f"the interrupted attempt had another {name}: repeat it as it was, or begin anew without --resume",
                    code="resume",
                    path=os.fspath(self.temporary),
                    expected=stated.get(name, "none"),
                    found=facts.get(name, "none"),
                )

    def _verified(self, lines: Sequence[bytes], payloads: Sequence[Range]) -> list[Kept]:
        """The payloads, from the first on, that are what their lines say."""
        stated = []
        for line, payload in zip(lines, payloads, strict=False):
            found = _LINE.fullmatch(line)
            if found is None or payload.end > self._left:
                break
            stated.append(Kept(int(found[1], 16), bytes.fromhex(found[2].decode())))
        with DigestPool(self.fd) as pool:
            for payload in payloads[: len(stated)]:
                pool.add(payload.offset, payload.nbytes)
            digests = pool.digests()
        wrong = (i for i, (kept, digest) in enumerate(zip(stated, digests, strict=True)) if kept.digest != digest)
        return stated[: next(wrong, len(stated))]

    def _clear(self, kept: Sequence[Range]) -> None:
        """Make everything zero but ``kept``, which are in order and have little between them."""
        end = 0
        for payload in kept:
            zeros = bytes(payload.offset - end)
            if os.pread(self.fd, len(zeros), end) != zeros:
                self.write_at(end, memoryview(zeros))
            end = payload.end
        self.disk.resize(self.fd, end)

    def _save(self) -> None:
        """Record what is finished and not recorded yet."""
        assert self._pool is not None
        done = zip(self._hashes[self._recorded :], self._pool.digests()[self._recorded :], strict=False)
        lines = [f"{hash64:016x} {digest.hex()}".encode() for hash64, digest in done]
        if lines:
            self.disk.sync(self.fd)
            self._journal.append(lines)
        self._recorded += len(lines)
        self._unsaved = 0


def partial_path(path: Path) -> Path:
    """Where what is finished of ``path`` is kept."""
    return path.with_name(f".{path.name}.partial")


def remove_partial(path: Path) -> None:
    """Remove what an interrupted attempt at ``path`` has left, unless another process goes on with it."""
    partial, journal = partial_path(path), _journal_path(path)
    if not os.path.lexists(partial) and not os.path.lexists(journal):
        return
    try:
        held = Journal(journal)
    except Busy:
        return
    partial.unlink(missing_ok=True)
    held.remove()


def _journal_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial.journal")


def _parse_facts(line: bytes) -> dict[str, str] | None:
    """None for a line that another program may have written."""
    try:
        facts = json.loads(line)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
