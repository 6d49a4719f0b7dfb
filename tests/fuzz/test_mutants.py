"""Thousands of damaged files, the same every time: each is read or refused, in time, and nothing else happens.

The normal build gets the first half, the sanitizer build the second: ``--mutants-from``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders.mutants import mutate
from builders.small_files import SMALL_FILES, small_file
from fuzz.oracle import accepts, examine, limited_memory, refused_lazily

COUNT = 30_000
EACH = 1000
COMPARED = 10
DEEP = 1000


@pytest.mark.parametrize("part", range(COUNT // EACH))
def test_read_or_refused(part: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    originals = [small_file(name) for name in SMALL_FILES]
    path, seen = tmp_path / "mutant.cmf", set()
    first = request.config.getoption("--mutants-from") + part * EACH
    with limited_memory():
        for seed in range(first, first + EACH):
            path.write_bytes(mutate(originals, random.Random(seed)))
            try:
                seen.add(examine(path, seed, deep=seed % DEEP == 0))
                if seed % COMPARED == 0:
                    assert accepts(path) != refused_lazily(path)
            except BaseException as error:
                error.add_note(f"mutant {seed}")
                raise
    assert "ok" in seen
    assert len(seen) > 20
