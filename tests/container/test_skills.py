"""Which tensor is read when a skill is active (SPEC 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cmf import F16, F32, T, pattern, two_layers
from cortiq.container import open_single
from cortiq.container.skills import split_name
from cortiq.errors import MissingTensor, Parse, UsageError

DATA = Path(__file__).parents[1] / "data" / "container"
NORM = "model.norm.weight"


def swarm(*extra: T, skills=({"id": "a"}, {"id": "empty"})):
    made = two_layers().with_header(skills=list(skills))
    own = T(f"skill.a.{NORM}", F32, (64,), pattern(256, 9))
    return made.with_tensors(*made.tensors, own, *extra)


def test_names():
    assert split_name("skill.sql.model.norm.weight") == ("sql", "model.norm.weight")
    for name in ("model.norm.weight", "skill.sql", "skill..x", "skill.sql.", "skill.", "skills.a.b"):
        assert split_name(name) is None


def test_a_skill_replaces_in_any_dtype(opened):
    file = opened(swarm())
    assert file.resolve(NORM).name == NORM
    assert file.resolve(NORM, "a").name == f"skill.a.{NORM}"
    assert file.resolve(NORM, "a").dtype == F32
    assert file.resolve(NORM, "empty").name == NORM
    assert file.resolve("model.embed_tokens.weight", "a").name == "model.embed_tokens.weight"
    assert list(file.skills) == ["a", "empty"]
    assert file.skills["a"].id == "a"
    assert {name: entry.name for name, entry in file.skills.entries("a").items()} == {NORM: f"skill.a.{NORM}"}
    assert file.skills.entries("empty") == {}
    assert file.skills is file.skills


def test_only_the_active_skill_counts(opened):
    more = [T(f"skill.{i}.{NORM}", F16, (64,), pattern(128, 20 + i)) for i in range(3)]
    file = opened(swarm(*more))
    assert [file.resolve(NORM, str(i)).name for i in range(3)] == [tensor.name for tensor in more]


def test_i3_an_id_that_only_tensors_have_can_be_chosen(opened):
    file = opened(swarm(T(f"skill.b.{NORM}", F16, (64,), pattern(128, 9))))
    assert file.skills.ids == ("a", "empty", "b")
    assert file.resolve(NORM, "b").name == f"skill.b.{NORM}"


def test_i3_an_unknown_skill_names_those_there_are(opened):
    for ask in (lambda file: file.resolve(NORM, "c"), lambda file: file.skills.entries("c")):
        with pytest.raises(UsageError) as caught:
            ask(opened(swarm()))
        assert (caught.value.code, caught.value.found) == ("skill", "c")
        assert caught.value.expected == "one of a, empty"
    with pytest.raises(UsageError) as caught:
        opened(two_layers()).resolve(NORM, "a")
    assert caught.value.path is not None


def test_i4_a_replacement_of_another_shape(opened):
    file = opened(swarm(T(f"skill.b.{NORM}", F16, (32, 2), pattern(128, 9))))
    with pytest.raises(Parse) as caught:
        file.resolve(NORM, "b")
    assert (caught.value.code, caught.value.tensor) == ("skill_shape", f"skill.b.{NORM}")
    assert (caught.value.expected, caught.value.found) == ([64], [32, 2])


def test_i4_a_skill_adds_no_names(opened):
    file = opened(swarm(T("skill.a.model.new.weight", F16, (64,), pattern(128, 9))))
    with pytest.raises(MissingTensor) as caught:
        file.resolve("model.new.weight", "a")
    assert caught.value.tensor == "model.new.weight"


def test_golden_grown_file():
    with open_single(DATA / "grown-1.cmf") as file:
        assert list(file.skills) == ["sql"]
        entries = file.skills.entries("sql")
        assert len(entries) == 6
        assert all(file.tensors[name].shape == entry.shape for name, entry in entries.items())
        assert file.resolve("model.layers.1.mlp.up_proj.weight", "sql").name.startswith("skill.sql.")
        assert file.resolve("model.layers.0.mlp.up_proj.weight", "sql").name.startswith("model.")
