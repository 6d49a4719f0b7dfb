"""Task masks added to a file and taken out of it in place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.cmf import ARCH, two_layers
from builders.tiny import write_tiny
from cortiq.container import MaskSet, grow, open_single, verify
from cortiq.container.digest import read_digests
from cortiq.edit.history import undo
from cortiq.edit.mask_source import mask_source
from cortiq.edit.masks import MaskAdded, add_mask, remove_mask, with_mask
from cortiq.errors import CortiqError


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A file without masks."""
    made = replace(two_layers(), masks=b"", index=b"", features=1, data=bytearray()).build()
    return made.save(tmp_path / "bare.cmf")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the masks general (the default) and code, and a sparse index of general."""
    return two_layers().save(tmp_path / "model.cmf")


def source(folder: Path, **document: Any) -> Path:
    """A mask as JSON."""
    path = folder / "mask.json"
    path.write_text(json.dumps(document))
    return path


def add(path: Path, name: str, **options: Any) -> MaskAdded:
    given = source(path.parent, head_masks=[[1, 0, 1, 1], None])
    return add_mask(path, name, mask_source(given), **options)


def masks_of(path: Path) -> MaskSet:
    with open_single(path) as file:
        assert {e.kind for e in verify(file, strict=True).problems} <= {"Parse.dead_bytes"}
        assert file.masks is not None
        for mask in file.masks.values():
            assert mask.gates.size
        return file.masks


def refused(kind: str, change: Any, path: Path, *arguments: Any, **options: Any) -> CortiqError:
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        change(path, *arguments, **options)
    assert caught.value.kind == kind
    assert path.read_bytes() == before
    return caught.value


def test_the_first_mask_brings_an_open_one(bare: Path) -> None:
    before = bare.read_bytes()
    assert add(bare, "code") == MaskAdded("code", False, 2)
    assert bare.read_bytes()[128 : len(before)] == before[128:]
    masks = masks_of(bare)
    assert list(masks) == ["general", "code"]
    assert masks.default is not None
    assert masks.default.is_open
    assert [(i.task_id, i.priority) for i in masks.infos.values()] == [(0, "Fallback"), (1, "Normal")]
    assert masks["code"].heads.tolist() == [[True, False, True, True], [True] * 4]
    with open_single(bare) as file:
        assert file.envelope.features == 0b11
    undo(bare)
    with open_single(bare) as file:
        assert file.masks is None


def test_a_first_mask_called_general_is_the_default(bare: Path) -> None:
    assert add(bare, "general").count == 1
    assert masks_of(bare).default_task == "general"


def test_adding_keeps_the_others_and_drops_the_index(path: Path) -> None:
    with open_single(path) as file:
        assert file.masks is not None
        before = {name: file.masks[name].ffn.tolist() for name in file.masks}
    assert add(path, "sql").count == 3
    masks = masks_of(path)
    assert list(masks) == ["general", "code", "sql"]
    assert {name: masks[name].ffn.tolist() for name in before} == before
    assert masks.infos["sql"].task_id == 2
    assert masks.default_task == "general"
    with open_single(path) as file:
        assert file.sparse_index is None
        assert set(file.section_hashes) == {"header", "directory", "masks", "vocab"}


def test_digests_follow(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.cmf")
    add(path, "sql")
    with open_single(path) as file:
        digests = read_digests(file)
        assert digests is not None
        assert digests.sections["masks"] == hashlib.sha256(file.section("masks") or b"").digest()
    remove_mask(path, "sql")
    assert list(masks_of(path)) == ["general"]


def test_replacing_keeps_id_and_place(path: Path) -> None:
    refused("UsageError.mask_name", add, path, "general")
    assert add(path, "general", overwrite=True) == MaskAdded("general", True, 2)
    masks = masks_of(path)
    assert list(masks) == ["general", "code"]
    assert masks.infos["general"].task_id == 0
    assert not masks["general"].is_open


def test_the_same_again_writes_nothing(path: Path) -> None:
    add(path, "sql")
    before = path.read_bytes()
    assert add(path, "sql", overwrite=True).replaced
    assert path.read_bytes() == before


def test_a_new_default(path: Path) -> None:
    add(path, "sql", default=True)
    assert masks_of(path).default_task == "sql"


def test_removing(path: Path) -> None:
    remove_mask(path, "code")
    assert list(masks_of(path)) == ["general"]
    remove_mask(path, "general")
    with open_single(path) as file:
        assert file.masks is None
        assert file.envelope.features == 1
        assert {e.kind for e in verify(file, strict=True).problems} <= {"Parse.dead_bytes"}
    assert refused("UsageError.mask", remove_mask, path, "general").expected == "a file with masks"


def test_masks_that_are_named_stay(path: Path, tmp_path: Path) -> None:
    refused("UsageError.mask", remove_mask, path, "none")
    assert "default task" in str(refused("UsageError.mask_used", remove_mask, path, "general"))
    refused("UsageError.mask", remove_mask, path, "general", default="none")
    refused("UsageError.mask_used", remove_mask, path, "general", default="general")
    add_mask(path, "child", mask_source(source(tmp_path, metadata={"parent": "code"})))
    assert "'child'" in str(refused("UsageError.mask_used", remove_mask, path, "code"))
    grow(
        path, header=lambda fields: {**fields, "skills": [{"id": "sql", "input_mask_task": "child", "base_arch": "x"}]}
    )
    assert "'sql'" in str(refused("UsageError.mask_used", remove_mask, path, "child"))
    remove_mask(path, "general", default="code")
    assert masks_of(path).default_task == "code"


def test_names(path: Path) -> None:
    refused("UsageError.mask_name", add, path, "")
    add(path, "x\x1b y")
    assert "x\x1b y" in masks_of(path)


def test_no_id_behind_the_largest(tmp_path: Path) -> None:
    with open_single(two_layers().save(tmp_path / "model.cmf")) as file:
        assert file.masks is not None
        code = file.masks["code"]
        last = replace(code, info=replace(code.info, task_id=2**32 - 1))
        with pytest.raises(CortiqError, match="no task id"):
            with_mask(MaskSet.of([last], "code"), file.masks["general"], file.arch)


def test_experts(tmp_path: Path) -> None:
    moe = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 8, "norm_topk_prob": True}
    made = replace(two_layers().with_arch(moe=moe), masks=b"", index=b"", features=1, data=bytearray()).build()
    path = made.save(tmp_path / "moe.cmf")
    add_mask(path, "text", mask_source(source(tmp_path, expert_masks=[None, [1, 0, 0, 1]])))
    mask = masks_of(path)["text"]
    assert mask.experts is not None
    assert mask.experts.tolist() == [[True] * 4, [True, False, False, True]]
    assert mask.info.sparsity == 0.25
    assert masks_of(path)["general"].experts is None


def test_loops(tmp_path: Path) -> None:
    made = two_layers().with_arch(num_loops=2)
    path = replace(made, masks=b"", index=b"", features=1, data=bytearray()).build().save(tmp_path / "loop.cmf")
    width = ARCH["intermediate_size"]
    off = [0] * width
    add_mask(path, "each", mask_source(source(tmp_path, ffn_masks=[None, None, None, off])))
    add_mask(path, "every", mask_source(source(tmp_path, ffn_masks=[None, off])))
    masks = masks_of(path)
    assert np.count_nonzero(masks["each"].ffn) == 3 * width
    assert masks["every"].ffn.any(axis=2).tolist() == [[True, False], [True, False]]
    with open_single(path) as file:
        assert file.envelope.features == 0b100011
