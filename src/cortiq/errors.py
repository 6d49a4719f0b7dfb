"""Every error the package raises on purpose, with the exit code the command line gives it.

    CortiqError                        1
    +- UsageError                      2   a request that cannot be meant: unknown option, task, name
    +- FormatError                     3   the file is not a valid CMF (SPEC 1.2)
    |  +- InvalidMagic                     the first four bytes are not CMF\\x01
    |  +- UnsupportedVersion           7   a version other than 2
    |  +- UnsupportedFeature           7   an unknown or reserved required_features bit
    |  +- Bounds                           an offset, length or size that does not fit
    |  +- Parse                            bytes that do not mean what they should
    |  +- Limit                            a size beyond what the reader accepts
    |  +- Shard                            a set of shards that does not belong together
    |  +- Changed                          the file shrank or changed under a reader
    +- VerificationError               4
    |  +- HashMismatch                     stored and computed hash differ
    |  +- Signature                        a signature that does not verify
    |  +- BaseMismatch                     a skill cut against another base
    +- UnsupportedArch                 7   a model, tensor or key the package does not know
    +- MissingTensor                   7   a tensor the architecture needs is absent
    +- ShapeMismatch                   7   a tensor's shape contradicts the architecture
    +- SourceError                     1   a checkpoint or GGUF that cannot be read
    +- NonFinite                       1   a weight that is NaN or infinite
    +- Tokenizer                       1   a tokenizer section that cannot be used
    +- Template                        1   a chat template that fails
    +- Busy                            1   somebody else is writing to the file
    +- NativeMissing                   1   the native core is not built
    +- OutOfMemory                     8   more memory than the machine or the setting allows
    +- NetworkError                    9   a transfer that failed

Each leaf that has a builtin counterpart also inherits from it. The native core raises the same classes.
"""

from __future__ import annotations

from typing import ClassVar


class CortiqError(Exception):
    """Root of all errors.

    ``code`` narrows the class (``"dir_count"``), ``path``, ``section``, ``tensor`` and ``offset`` say where,
    ``expected`` and ``found`` what. Absent facts are None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        path: str | None = None,
        section: str | None = None,
        tensor: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.path = path
        self.section = section
        self.tensor = tensor
        self.offset = offset
        self.expected = expected
        self.found = found

    @property
    def kind(self) -> str:
        """Class name and code, as in ``Bounds.dir_count``."""
        name = type(self).__name__
        return f"{name}.{self.code}" if self.code else name

    def __str__(self) -> str:
        where = []
        if self.path is not None:
            where.append(printable(self.path))
        if self.section is not None:
            where.append(self.section)
        if self.tensor is not None:
            where.append(f"tensor {printable(self.tensor)!r}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        text = f"{self.kind}: {self.message}"
        if self.expected is not None or self.found is not None:
            text += f" (expected {printable(str(self.expected))}, found {printable(str(self.found))})"
        return f"{text} [{', '.join(where)}]" if where else text


def printable(text: str) -> str:
    """``text`` with every character a terminal might obey replaced by its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class UsageError(CortiqError, ValueError):
    """A request that cannot be meant."""

    exit_code = 2


class FormatError(CortiqError, ValueError):
    """The file is not a valid CMF file."""

    exit_code = 3


class InvalidMagic(FormatError):
    """The first four bytes are not ``CMF\\x01``."""


class UnsupportedVersion(FormatError):
    """A CMF version other than 2."""

    exit_code = 7


class UnsupportedFeature(FormatError):
    """An unknown or reserved bit of ``required_features``."""

    exit_code = 7


class Bounds(FormatError):
    """An offset, length or size that does not fit."""


class Parse(FormatError):
    """Bytes that do not mean what they should."""


class Limit(FormatError):
    """A size beyond what the reader accepts."""


class Shard(FormatError):
    """A set of shards that does not belong together."""


class Changed(FormatError):
    """The file shrank or changed under a reader."""


class VerificationError(CortiqError):
    """The file is well formed, but not what it claims to be."""

    exit_code = 4


class HashMismatch(VerificationError):
    """Stored and computed hash differ."""


class Signature(VerificationError):
    """A signature that does not verify."""


class BaseMismatch(VerificationError):
    """A skill cut against another base."""


class UnsupportedArch(CortiqError):
    """A model, tensor or key the package does not know."""

    exit_code = 7


class MissingTensor(CortiqError, KeyError):
    """A tensor that is needed is absent."""

    exit_code = 7
    __str__ = CortiqError.__str__


class ShapeMismatch(CortiqError, ValueError):
    """A tensor's shape contradicts the architecture."""

    exit_code = 7


class SourceError(CortiqError):
    """A checkpoint or GGUF that cannot be read."""


class NonFinite(CortiqError, ValueError):
    """A weight that is NaN or infinite."""


class Tokenizer(CortiqError):
    """A tokenizer section that cannot be used."""


class Template(CortiqError):
    """A chat template that fails."""


class Busy(CortiqError, BlockingIOError):
    """Somebody else is writing to the file."""

    __str__ = CortiqError.__str__


class NativeMissing(CortiqError, ImportError):
    """The native core is not built."""


class OutOfMemory(CortiqError, MemoryError):
    """More memory than the machine or the setting allows."""

    exit_code = 8


class NetworkError(CortiqError, OSError):
    """A transfer that failed."""

    exit_code = 9
    __str__ = CortiqError.__str__
