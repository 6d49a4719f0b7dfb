"""Standalone skill files and the bases they fit (SPEC 9.1), by the ids of the hostile-file catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cmf import F16, Cmf, T, header, pattern, two_layers
from cortiq.container import check_base, open_single, skill_file
from cortiq.container.skill_file import dir_key, refuse_to_run
from cortiq.errors import CortiqError, UnsupportedArch, UsageError

DATA = Path(__file__).parents[1] / "data" / "container"


def cut(key: str, *, skill: str = "a", **fields: object) -> Cmf:
    """A standalone skill bound to ``key``."""
    tensor = T("model.norm.weight", F16, (64,), pattern(128, 9))
    record = {"id": skill, "base_dir_hash": key, **fields}
    return Cmf(header(skills=[record]), [tensor], features=0b1000001).build()


def key_of(made: Cmf) -> str:
    return f"{made.get('dir_hash'):016x}"


def mismatch(opened, skill: Cmf, base: Cmf) -> CortiqError:
    with pytest.raises(CortiqError) as caught:
        check_base(skill_file(opened(skill)), opened(base))
    return caught.value


def grown(base: Cmf, *skills: str) -> Cmf:
    """The base with the tensors of some skills behind its own, one skill after the other."""
    more = [
        T(f"skill.{name}.model.{part}.weight", F16, (64,), pattern(128, i))
        for name in skills
        for i, part in enumerate(("norm", "layers.0.input_layernorm"))
    ]
    return base.with_tensors(*base.tensors, *more)


def test_golden_skill_fits_its_base():
    with open_single(DATA / "sql.skill.cmf") as file, open_single(DATA / "llama-q8.cmf") as base:
        found = skill_file(file)
        assert (found.skill.id, found.skill.name, found.skill.layers) == ("sql", "SQL", (1, 2))
        assert found.base_dir_hash == 0xD75C93192D295A47 == dir_key(base)
        assert (found.skill.base_arch, found.skill.task) == ("llama", "general")
        assert found.skill.provenance == {"cut_from": "donor-sql-q8.cmf", "tensors": len(file)}
        assert all(base.tensors[name].shape == entry.shape for name, entry in file.tensors.items())
        check_base(found, base)


def test_golden_skill_against_the_grown_base():
    with open_single(DATA / "sql.skill.cmf") as file, open_single(DATA / "grown-1.cmf") as base:
        with pytest.raises(CortiqError) as caught:
            check_base(skill_file(file), base)
        assert caught.value.kind == "BaseMismatch.grown"
        assert caught.value.expected == "directory d75c93192d295a47"
        assert "first 39 tensors" in caught.value.message


def test_an_unhashed_base_is_known_by_its_directory(opened):
    base = two_layers()
    key = key_of(base)
    check_base(skill_file(opened(cut(key))), opened(base.set("dir_hash", 0)))


def test_digits_in_capitals_are_the_same_key(opened):
    check_base(skill_file(opened(cut(key_of(two_layers()).upper()))), opened(two_layers()))


@pytest.mark.parametrize("skills", [("x",), ("x", "y"), ("x", "y", "z")])
def test_i7_a_base_that_has_grown(opened, skills):
    base = two_layers()
    error = mismatch(opened, cut(key_of(base)), grown(base, *skills))
    assert error.kind == "BaseMismatch.grown"
    assert "has grown" in error.message
    assert f"first {len(base.tensors)} tensors" in error.message
    assert error.exit_code == 4


def test_i7_a_base_that_has_grown_since_it_had_skills(opened):
    before = grown(two_layers(), "x")
    error = mismatch(opened, cut(key_of(before)), grown(two_layers(), "x", "y"))
    assert error.kind == "BaseMismatch.grown"
    assert f"first {len(before.tensors)} tensors" in error.message


def test_i7_other_weights(opened):
    base = two_layers()
    other = T("model.norm.weight", F16, (64,), pattern(128, 200))
    changed = base.with_tensors(*(other if t.name == other.name else t for t in base.tensors))
    for made in (changed, grown(changed, "x")):
        error = mismatch(opened, cut(key_of(base), base_arch="llama"), made)
        assert error.kind == "BaseMismatch.base"
        assert "another model" in error.message
        assert "'llama'" in error.message
        assert error.expected == f"directory {key_of(base)}"
        assert error.found == key_of(made)


def test_i5_a_key_of_zero_fits_nothing(opened):
    base = two_layers()
    assert mismatch(opened, cut("0"), base).kind == "BaseMismatch.base"
    assert mismatch(opened, cut("0"), base.set("dir_hash", 0)).kind == "BaseMismatch.base"


def test_i7_itself_another_skill_and_a_shard(opened, tmp_path):
    path = cut("1").save(tmp_path / "s.cmf")
    with open_single(path) as file, open_single(path) as again, pytest.raises(UsageError) as caught:
        check_base(skill_file(file), again)
    assert caught.value.code == "same_file"
    assert mismatch(opened, cut("1"), cut("1", skill="b")).kind == "UsageError.skill_base"
    shard = two_layers().with_header(shard={"no": 1, "count": 2})
    assert mismatch(opened, cut(key_of(shard)), shard).kind == "Shard.base"


def test_no_skill_file(opened):
    with pytest.raises(UsageError) as caught:
        skill_file(opened(two_layers().with_header(skills=[{"id": "a"}])))
    assert caught.value.code == "no_skill_file"


def test_i6_a_skill_file_does_not_run(opened):
    refuse_to_run(opened(two_layers()))
    with pytest.raises(UnsupportedArch, match="cortiq skill apply") as caught:
        refuse_to_run(opened(cut("1")))
    assert caught.value.code == "skill_file"
