"""The targets of the long run in small: a fixed sequence of inputs, and the inputs that once led somewhere new."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from fuzz.oracle import limited_memory
from fuzz.targets import TARGETS, native_seeds

CORPUS = Path(__file__).parents[1] / "data" / "fuzz" / "corpus.zip"
COUNTS = {"signature": 1000, "whole_file": 1000}
POOL = 200


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_from_each_other(name: str) -> None:
    target, rng = TARGETS[name], random.Random(name)
    pool = list(target.seeds())
    seeds = len(pool)
    for data in pool:
        target.run(data)
    with limited_memory():
        for _ in range(COUNTS.get(name, 6000)):
            made = target.change(rng.choice(pool if rng.random() < 0.5 else pool[:seeds]), rng)
            target.run(made)
            pool[seeds + POOL :] = []
            pool.insert(rng.randrange(seeds, len(pool) + 1), made)


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(name: str) -> None:
    with zipfile.ZipFile(CORPUS) as archive:
        names = [member for member in archive.namelist() if member.startswith(f"{name}/")]
        assert len(names) > 10
        for member in names:
            TARGETS[name].run(archive.read(member))


def test_native_targets_have_inputs() -> None:
    assert len(native_seeds("decode")) > 30
    assert native_seeds("hash")
