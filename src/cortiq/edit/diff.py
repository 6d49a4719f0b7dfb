"""What two files have in common and what not: arch, header, sections, tensors (SPEC 2, 3, 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cortiq.container import File, TensorEntry
from cortiq.container.digest import FIELD, Digests, covered, read_digests
from cortiq.container.values import row_blocks
from cortiq.errors import Bounds, Parse, UnsupportedFeature

Progress = Callable[[int, int], None]
Identity = Literal["sha256", "hash64"]
_SECTIONS = ("masks", "vocab", "index")
_DERIVED = frozenset({"arch", "section_hashes", "shard", FIELD})  # compared by themselves, or follow from the rest


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of header or arch; ``path`` is dotted, None stands for an absent field as for null."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class TensorChange:
    """A tensor both files have, with different content, dtype or shape.

    ``relative``  root of the summed squares of the difference over that of the first tensor, NaN included
    ``largest``   largest absolute difference
    Both are None when the values were not compared: another shape, a dtype without decoder, invalid content.
    """

    before: TensorEntry
    after: TensorEntry
    relative: float | None
    largest: float | None

    @property
    def same_kind(self) -> bool:
        """Whether dtype and shape are those of before."""
        return (self.before.dtype, self.before.shape) == (self.after.dtype, self.after.shape)


@dataclass(frozen=True, slots=True)
class Diff:
    """``identity`` is what equal tensors were recognized by; hash64 does not see words that changed places.

    ``sections`` names those that differ, ``same`` counts the tensors that do not.
    """

    identity: Identity
    fields: tuple[FieldChange, ...]
    sections: tuple[str, ...]
    added: tuple[TensorEntry, ...]
    removed: tuple[TensorEntry, ...]
    changed: tuple[TensorChange, ...]
    same: int

    @property
    def equal(self) -> bool:
        """True when nothing differs. Where things lie, in how many files, and whether there are digests does not
        count.
        """
        return not (self.fields or self.sections or self.added or self.removed or self.changed)


def diff(a: File, b: File, *, values: bool = True, progress: Progress | None = None) -> Diff:
    """What changes from ``a`` to ``b``.

    Tensors are compared by the SHA-256 digests when both files carry them, else by hash64, both as the files state
    them: ``verify`` tells whether that is true. Sections are compared by the digests too, else byte by byte. With
    ``values`` tensors that differ are decoded and compared. Raises what ``read_digests`` raises for digests that cannot
    be read.
    """
    strong = (_digests(a), _digests(b))
    names_a, names_b = covered(a), covered(b)
    both = [name for name in names_a if name in b]
    different = [name for name in both if not _same(a, b, name, strong)]
    total = sum(a.tensors[name].nbytes for name in different)
    done = 0
    changed = []
    for name in different:
        errors = _errors(a, b, name) if values else (None, None)
        changed.append(TensorChange(a.tensors[name], b.tensors[name], *errors))
        done += a.tensors[name].nbytes
        if progress is not None:
            progress(done, total)
    return Diff(
        identity="hash64" if None in strong else "sha256",
        fields=tuple(_fields(a, b)),
        sections=tuple(name for name in _SECTIONS if not _same_section(a, b, name, strong)),
        added=tuple(b.tensors[name] for name in names_b if name not in a),
        removed=tuple(a.tensors[name] for name in names_a if name not in b),
        changed=tuple(changed),
        same=len(both) - len(different),
    )


def _digests(file: File) -> Digests | None:
    """Those of ``file``; of a set those of all its files, none where one has none."""
    found = [read_digests(part) for part in file.parts or (file,)]
    stated = [digests for digests in found if digests is not None]
    if len(stated) < len(found):
        return None
    return Digests({name: value for part in stated for name, value in part.tensors.items()}, stated[0].sections)


def _same(a: File, b: File, name: str, strong: tuple[Digests | None, Digests | None]) -> bool:
    x, y = a.tensors[name], b.tensors[name]
    if (x.dtype, x.shape, x.nbytes) != (y.dtype, y.shape, y.nbytes):
        return False
    if strong[0] is not None and strong[1] is not None:
        return strong[0].tensors[name] == strong[1].tensors[name]
    return x.hash == y.hash


def _same_section(a: File, b: File, name: str, strong: tuple[Digests | None, Digests | None]) -> bool:
    if a.envelope.section(name).nbytes != b.envelope.section(name).nbytes:
        return False
    stated = [digests.sections[name] for digests in strong if digests is not None and name in digests.sections]
    return stated[0] == stated[1] if len(stated) == 2 else a.section(name) == b.section(name)


def _fields(a: File, b: File) -> Iterator[FieldChange]:
    """Fields of arch first, then those of the header; objects are descended into, arrays compared as a whole."""
    before, after = a.header.to_dict(), b.header.to_dict()
    yield from _changes("arch", before["arch"], after["arch"])
    yield from _changes("", _stated(before), _stated(after))


def _stated(fields: dict[str, Any]) -> dict[str, Any]:
    """Header fields that say something of their own; skill records by their id."""
    stated = {key: value for key, value in fields.items() if key not in _DERIVED}
    skills = stated.get("skills") or []
    stated["skills"] = {str(skill.get("id")): skill for skill in skills}
    return stated


def _changes(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(inner, before.get(key), after.get(key))
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield FieldChange(path, before, after)


def _errors(a: File, b: File, name: str) -> tuple[float | None, float | None]:
    """Relative and largest absolute difference of two tensors of one shape; None where they cannot be compared."""
    x, y = a[name], b[name]
    if x.shape != y.shape:
        return None, None
    squares = reference = largest = 0.0
    try:
        for before, after in zip(row_blocks(x), row_blocks(y), strict=True):
            wide = before.astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                distance = after.astype(np.float64) - wide
                squares += float(np.sum(distance * distance))
                reference += float(np.sum(wide * wide))
                largest = float(np.fmax(largest, np.max(np.abs(distance), initial=0.0)))
    except (Parse, Bounds, UnsupportedFeature):
        return None, None
    if squares == 0:
        return 0.0, largest
    return (math.sqrt(squares / reference) if reference else math.inf), largest
