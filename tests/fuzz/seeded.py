"""Ten mistakes put in on purpose, a check dropped each: who does not find them would not find ours.

Those of the Python code are found by the mutants, in the tests; those of the native code by its harness, which is
compiled with each of them: ``tools/fuzz_seeded.py`` does all ten.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from builders.mutants import mutate
from builders.small_files import SMALL_FILES, small_file
from cortiq.container import envelope, names, strict_json, tensor_checks
from cortiq.layouts.base import Layout
from cortiq.layouts.q1t import Q1T
from cortiq.layouts.vbit import Vbit
from fuzz.oracle import accepts, examine, refused_lazily


@dataclass(frozen=True, slots=True)
class Bug:
    """``put`` puts it in, ``files`` are the small files that are damaged."""

    name: str
    put: Callable[[pytest.MonkeyPatch], None]
    files: tuple[str, ...] = tuple(SMALL_FILES)


@dataclass(frozen=True, slots=True)
class NativeBug:
    """``new`` instead of ``old`` in a file of csrc."""

    name: str
    path: str
    old: str
    new: str


def _nothing(*_: object) -> None:
    """In place of a check."""


BUGS = (
    Bug("tensors may overlap", lambda patch: patch.setattr(tensor_checks, "_check_overlap", _nothing)),
    Bug("sections may overlap", lambda patch: patch.setattr(envelope, "_check_overlap", _nothing)),
    Bug("control characters in names", lambda patch: patch.setattr(names, "_CONTROL", re.compile(r"(?!)"))),
    Bug(
        "keys of the header may occur twice",
        lambda patch: patch.setattr(strict_json._Parser, "_object", lambda _, pairs: dict(pairs)),
    ),
    Bug("q1t: outliers anywhere", lambda patch: patch.setattr(Q1T, "validate", Layout.validate), ("dtypes",)),
    Bug("vbit: any widths", lambda patch: patch.setattr(Vbit, "validate", Layout.validate), ("dtypes",)),
)
NATIVE_BUGS = (
    NativeBug("q1t: an outlier beyond the last column", "layouts/q1t.h", "if (column < w.cols) out", "out"),
    NativeBug("q1t: outliers beyond the payload", "layouts/q1t.h", "i < range[1] && i < count", "i < range[1]"),
    NativeBug("q1s: an outlier of another row", "layouts/q1s.h", "if (column >= w.cols) break;", ""),
    NativeBug(
        "vbit: rows beyond the payload",
        "layouts/vbit.h",
        "offset <= w.nbytes && w.nbytes - offset >= 4 * groups * std::size_t(width)",
        "true",
    ),
)


def find(bug: Bug, path: Path, most: int) -> int | None:
    """How many mutants it takes to see the bug, which has been put in; None when ``most`` do not."""
    originals = [small_file(name) for name in bug.files]
    for seed in range(most):
        path.write_bytes(mutate(originals, random.Random(seed)))
        try:
            examine(path, seed)
            if accepts(path) == refused_lazily(path):
                return seed
        except Exception:  # noqa: BLE001 - that is how it shows
            return seed
    return None
