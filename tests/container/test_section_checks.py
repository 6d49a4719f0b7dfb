"""What verifying says about masks, index and skills, by the ids of the hostile-file catalogue."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from builders.cmf import ARCH, F16, Cmf, T, pattern, two_layers
from builders.mask_sections import info, ones, section
from cortiq.container import Finding, check_index, check_masks, check_skills, open_single

DATA = Path(__file__).parents[1] / "data" / "container"
NORM = "model.norm.weight"
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}


def kinds(findings: Iterable[Finding]) -> list[tuple[str, bool]]:
    found = []
    for finding in findings:
        assert finding.error.section is not None
        found.append((finding.error.code, finding.problem))
    return found


def with_masks(masks: bytes, **arch: object) -> Cmf:
    made = two_layers()
    return replace(made, header={**made.header, "arch": {**ARCH, **arch}}, masks=masks, data=bytearray()).build()


def with_skills(skills: list[dict[str, object]], *tensors: T, **fields: object) -> Cmf:
    made = two_layers().with_header(skills=skills, **fields)
    return made.with_tensors(*made.tensors, *tensors)


def own(name: str, shape: tuple[int, ...] = (64,)) -> T:
    return T(name, F16, shape, pattern(128, 9))


@pytest.mark.parametrize("name", ["llama-q8.cmf", "loop.skill.cmf", "sql.skill.cmf", "grown-1.cmf"])
def test_golden_files_give_no_cause(name):
    with open_single(DATA / name) as file:
        assert [*kinds(check_masks(file)), *kinds(check_index(file)), *kinds(check_skills(file))] == []


def test_a_file_without_them(opened):
    file = opened(replace(two_layers(), masks=b"", index=b"", features=1, data=bytearray()).build())
    assert [*check_masks(file), *check_index(file), *check_skills(file)] == []


def test_e7_tails(opened):
    bits = bytearray(ones((2, 17), (2, 4), (1, 2)))
    bits[6] |= 0x10
    bits[8] |= 4
    file = opened(with_masks(section((info(), bytes(bits))), intermediate_size=17))
    assert kinds(check_masks(file)) == [("mask_tail", True)] * 2


def test_e8_no_expert_left(opened):
    bits = ones((2, 96), (2, 4), (1, 2)) + b"\x0f\x00"
    file = opened(with_masks(section((info(has_expert_fields=True), bits)), moe=MOE))
    assert kinds(check_masks(file)) == [("mask_empty_experts", True)]


def test_e9_names_that_lead_nowhere(opened):
    masks = section((info(parent="gone"), ones((2, 96), (2, 4), (1, 2))), default_task="general")
    assert kinds(check_masks(opened(with_masks(masks)))) == [("mask_default", False), ("mask_parent", False)]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (b"", [("index", True)]),
        (struct.pack("<IIIIHH", 0, 0, 1, 0, 3, 0), [("index", True), ("index_masks", False)]),
        (struct.pack("<IIIIHH", 1, 0, 1, 0, 0, 0), [("index_masks", False)]),
    ],
)
def test_g_index(opened, entries, found):
    made = replace(two_layers(), index=struct.pack("<II", 1, 0) + entries, data=bytearray()).build()
    assert kinds(check_index(opened(made))) == found


def test_g_index_without_masks(opened):
    assert kinds(check_index(opened(replace(two_layers(), masks=b"", features=1, data=bytearray()).build()))) == []


def test_i3_records_and_tensors_that_do_not_meet(opened):
    file = opened(with_skills([{"id": "a"}], own(f"skill.b.{NORM}"), own("skill.c")))
    found = [("skill_empty", False), ("skill_unregistered", False), ("skill_name", False)]
    assert kinds(check_skills(file)) == found


def test_i3_an_applied_skill_has_no_tensors_of_its_own(opened):
    assert kinds(check_skills(opened(with_skills([{"id": "a", "base_arch": "llama"}])))) == []


def test_i3_one_file_of_a_set_knows_only_its_own(opened):
    made = with_skills([{"id": "a"}], own("skill.b.model.elsewhere.weight"), shard={"no": 1, "count": 2})
    assert kinds(check_skills(opened(made))) == []


def test_i4_shapes_and_names(opened):
    tensors = (own(f"skill.a.{NORM}", (2, 32)), own("skill.a.model.gone.weight"))
    assert kinds(check_skills(opened(with_skills([{"id": "a"}], *tensors)))) == [("skill_shape", True)] * 2


def test_i1_ids_no_writer_gives(opened):
    file = opened(with_skills([{"id": "sql "}], own(f"skill.sql .{NORM}")))
    assert kinds(check_skills(file)) == [("skill_id", False)]


def test_i8_selections(opened):
    mean = base64.b64encode(bytes(128)).decode()
    selection = {"metric": "mse", "phi_layer": 2, "mean": mean, "basis": "", "rank": 0}
    file = opened(with_skills([{"id": "a", "selection": selection}], own(f"skill.a.{NORM}")))
    assert kinds(check_skills(file)) == [("selection", False)]


@pytest.mark.parametrize("layers", [[0, 1, "..."], [-1], [True], "all", {}, [2]])
def test_i9_layers(opened, layers):
    file = opened(with_skills([{"id": "a", "layers": layers}], own(f"skill.a.{NORM}")))
    assert kinds(check_skills(file)) == [("skill_layers", False)]
