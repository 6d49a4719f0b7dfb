"""Skill records of the header (SPEC 9, 9.1), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from builders.cmf import ARCH, Cmf, header
from cortiq.container.header import parse_header
from cortiq.container.skill_records import check_new_id
from cortiq.errors import Parse

SECTIONS = Path(__file__).parents[1] / "data" / "container" / "sections"


def b64(values: object) -> str:
    return base64.b64encode(np.asarray(values, "<f2").tobytes()).decode()


def selection(**changes: object) -> dict[str, object]:
    stated = {"metric": "mse", "phi_layer": 1, "mean": b64(np.arange(64)), "basis": b64(np.eye(2, 64)), "rank": 2}
    return {key: value for key, value in {**stated, **changes}.items() if value is not ...}


def with_skill(cmf: Cmf, **fields: object) -> Cmf:
    return cmf.with_header(skills=[{"id": "sql", **fields}])


def test_a_record(cmf, opened):
    stated = {
        "id": "sql",
        "name": "SQL assistant",
        "layers": [0, 1],
        "selection": selection(err_mean=0.5, holdout=b64(np.ones(128)), holdout_n=2, fitted="x"),
        "input_mask_task": "code",
        "quality": {"metric": "ppl", "tokens": [1]},
        "base_arch": "llama",
        "task": "general",
        "provenance": {"tensors": 3},
        "defrag": {"kept": [1]},
    }
    (skill,) = opened(cmf.with_header(skills=[stated])).header.skills
    assert (skill.id, skill.name, skill.layers, skill.input_mask_task) == ("sql", "SQL assistant", (0, 1), "code")
    assert skill.quality == {"metric": "ppl", "tokens": (1,)}
    assert (skill.base_arch, skill.task, skill.provenance, skill.base_dir_hash) == (
        "llama",
        "general",
        {"tensors": 3},
        None,
    )
    assert dict(skill.extra) == {"defrag": {"kept": (1,)}}
    found = skill.selection
    assert (found.metric, found.phi_layer, found.rank, found.err_mean, found.err_std) == ("mse", 1, 2, 0.5, None)
    assert np.array_equal(found.mean, np.arange(64))
    assert np.array_equal(found.basis, np.eye(2, 64))
    assert found.holdout.shape == (2, 64)
    assert dict(found.extra) == {"fitted": "x"}
    assert not found.mean.flags.writeable
    assert found.unusable(2) is None


def test_the_least_a_record_says(cmf, opened):
    null = dict.fromkeys(("name", "selection", "input_mask_task", "quality", "base_dir_hash", "base_arch", "task"))
    for fields in ({}, null):
        (skill,) = opened(with_skill(cmf, **fields)).header.skills
        assert (skill.name, skill.layers, skill.selection, skill.quality) == (None, (), None, None)


def test_golden_registry():
    stated = json.loads((SECTIONS / "expected.json").read_text())["two-skills"]["header"]
    sql, poem = parse_header(json.dumps(stated).encode()).skills
    assert (sql.id, sql.name, sql.layers, sql.selection.rank) == ("sql", "SQL assistant", (1, 2), 2)
    assert sql.quality["overlaid"] == 729.754
    assert (poem.id, poem.name, poem.layers, poem.selection.basis.shape) == ("poem", None, (2, 3), (3, 64))
    gram = poem.selection.basis.astype(np.float32) @ poem.selection.basis.astype(np.float32).T
    assert np.allclose(gram, np.eye(3), atol=0.01)


@pytest.mark.parametrize("rank", [..., None])
def test_rank_is_inferred(cmf, opened, rank):
    (skill,) = opened(with_skill(cmf, selection=selection(rank=rank))).header.skills
    assert skill.selection.rank == 2


def test_one_prompt_leaves_the_mean_alone(cmf, opened):
    (skill,) = opened(with_skill(cmf, selection=selection(rank=0, basis=""))).header.skills
    assert skill.selection.basis.shape == (0, 64)


@pytest.mark.parametrize("skill_id", ["", ".", "..", "a.b", "a/b", "../x"])
def test_i1_ids(cmf, refuse, skill_id):
    refuse(cmf.with_header(skills=[{"id": skill_id}]), "Parse.skill_id")


@pytest.mark.parametrize(
    "skill_id", ["", ".", "..", "a.b", "a/b", "a\\b", "x" * 65, "a\0", "\uff21", "sql ", "-a", "ä"]
)
def test_i1_new_ids(skill_id):
    with pytest.raises(Parse) as caught:
        check_new_id(skill_id)
    assert caught.value.code == "skill_id"


@pytest.mark.parametrize("skill_id", ["a", "0", "gfx-html", "A_b", "CON", "x" * 64])
def test_i1_good_ids(skill_id):
    check_new_id(skill_id)


@pytest.mark.parametrize("fields", [{"id": 3}, {"id": None}, {"name": 1}, {"task": []}, {"base_arch": {}}])
def test_i1_types(cmf, refuse, fields):
    refuse(cmf.with_header(skills=[{"id": "a", **fields}]), "Parse.skill")


def test_i2_one_id_twice(cmf, refuse):
    refuse(cmf.with_header(skills=[{"id": "a"}, {"id": "b"}, {"id": "a"}]), "Parse.skill_dup")


@pytest.mark.parametrize("value", ["", "0x12", "0" * 17, "xyz", 5, True, []])
def test_i5_base_dir_hash_is_a_hash(cmf, refuse, value):
    refuse(with_skill(cmf, base_dir_hash=value), "Parse.skill_file")


@pytest.mark.parametrize("value", ["9F22593EB458BC6F", "a1"])
def test_i5_base_dir_hash_is_a_number(opened, value):
    made = Cmf(header(skills=[{"id": "a", "base_dir_hash": value}]), [], features=0b1000001).build()
    assert opened(made).header.skills[0].base_dir_hash == int(value, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": ...},
        {"basis": ...},
        {"metric": ...},
        {"phi_layer": ...},
        {"mean": None},
        {"mean": "@@@@"},
        {"mean": "äöü="},
        {"mean": b64(np.ones(64))[:-1]},
        {"mean": b64(np.ones(64)) + "\n"},
        {"mean": base64.b64encode(bytes(127)).decode()},
        {"mean": b64(np.ones(63))},
        {"mean": ""},
        {"basis": b64(np.ones(127))},
        {"basis": b64(np.ones(64))},
        {"basis": b64(np.ones(192))},
        {"basis": ""},
        {"rank": 3},
        {"rank": -1},
        {"rank": 2.0},
        {"phi_layer": -1},
        {"phi_layer": "1"},
        {"metric": 1},
        {"err_mean": "x"},
        {"holdout": b64(np.ones(65))},
        {"holdout": b64(np.ones(64)), "holdout_n": 2},
    ],
)
def test_i8_selection(cmf, refuse, change):
    error = refuse(with_skill(cmf, selection=selection(**change)), "Parse.selection")
    assert "selection" in error.message


def test_i8_selection_is_an_object(cmf, refuse):
    refuse(with_skill(cmf, selection=[]), "Parse.selection")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"mean": b64(np.full(64, np.nan))}, "finite"),
        ({"basis": b64(np.full(128, np.inf))}, "finite"),
        ({"metric": "cosine"}, "cosine"),
        ({"phi_layer": 2}, "phi_layer"),
    ],
)
def test_i8_selections_nothing_can_route_by_open(cmf, opened, change, word):
    (skill,) = opened(with_skill(cmf, selection=selection(**change))).header.skills
    assert word in skill.selection.unusable(2)


@pytest.mark.parametrize(
    ("layers", "kept"), [([0, 1, "...", 21], (0, 1, 21)), ([-1, 1.5, True, None, [3]], ()), ("all", ()), (None, ())]
)
def test_i9_layers_are_informative(cmf, opened, layers, kept):
    (skill,) = opened(with_skill(cmf, layers=layers)).header.skills
    assert skill.layers == kept


def test_i10_many_skills(cmf, opened):
    skills = [{"id": f"s{i}", "layers": list(range(8)), "selection": selection()} for i in range(10_000)]
    assert len(opened(cmf.with_header(skills=skills)).header.skills) == 10_000


def test_b18_surrogate_in_an_id(cmf, refuse):
    raw = json.dumps(header(arch=ARCH, skills=[{"id": "\ud800"}])).encode()
    refuse(cmf.with_header(raw), "Parse.surrogate")
