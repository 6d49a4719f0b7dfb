"""Random damage: a file opens and verifies without a crash, or gives one error of the tree. Hashes are kept right."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.cmf import Cmf, two_layers
from builders.mutants import damage_bytes, damage_envelope, damage_header, damage_record
from cortiq.container import open_single, verify
from cortiq.errors import CortiqError, FormatError, HashMismatch

Damage = Callable[[Cmf, random.Random], None]


@pytest.mark.parametrize("damage", [damage_envelope, damage_record, damage_header, damage_bytes])
def test_one_error_of_the_tree_or_none(tmp_path: Path, damage: Damage) -> None:
    rng, path, kinds = random.Random(damage.__name__), tmp_path / "bad.cmf", set()
    for _ in range(200):
        cmf = two_layers()
        for _ in range(rng.choice((1, 1, 2))):
            damage(cmf, rng)
        if damage is not damage_envelope:
            cmf.rehash()
        try:
            with open_single(cmf.save(path)) as file:
                verify(file, threads=1)
                for name in file:
                    assert file[name].nbytes == len(file[name].raw)
                kinds.add("ok")
        except CortiqError as error:
            kinds.add(error.kind if isinstance(error, FormatError | HashMismatch) and error.code else "unexpected")
    assert "unexpected" not in kinds
    assert len(kinds) > (2 if damage is damage_bytes else 5)
