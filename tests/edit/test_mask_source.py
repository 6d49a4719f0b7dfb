"""Where masks come from: JSON as trainers write it, and other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.cmf import ARCH, Cmf, header, two_layers
from cortiq.container import Mask, open_single
from cortiq.edit.mask_source import mask_source
from cortiq.errors import CortiqError

DATA = Path(__file__).parents[1] / "data" / "container"
WIDTH, LAYERS, HEADS = ARCH["intermediate_size"], 2, 4


def read(folder: Path, document: Any, name: str = "m") -> Mask:
    path = folder / "mask.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with open_single(two_layers().save(folder / "model.cmf")) as file:
        return mask_source(path).read(file.arch, name)


def test_rows_are_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ffn, heads = rng.random((LAYERS, WIDTH)), rng.random((LAYERS, HEADS))
    mask = read(tmp_path, {"ffn_masks": ffn.tolist(), "head_masks": heads.tolist(), "layer_gates": [True, 0.5]})
    assert np.array_equal(mask.ffn[0], ffn > 0.5)
    assert np.array_equal(mask.heads, heads > 0.5)
    assert mask.gates.tolist() == [True, False]
    assert mask.experts is None
    assert mask.info.sparsity == pytest.approx(max(mask.inactive_shares().values()))


def test_nothing_restricts_nothing(tmp_path: Path) -> None:
    for document in ({}, {"ffn_masks": None, "metadata": None}, {"ffn_masks": [None, None], "metadata": {}}):
        mask = read(tmp_path, document)
        assert mask.is_open
        assert (mask.info.name, mask.info.sparsity, mask.info.quality) == ("m", 0.0, None)


def test_metadata(tmp_path: Path) -> None:
    quality = {"metric": "heldout_ppl_ratio", "value": 0.97, "n_samples": 512, "other": 1}
    metadata = {
        "task_name": "not used: the command names the mask",
        "sparsity": 0.25,
        "description": "text",
        "quality": quality,
        "priority": "Primary",
        "parent": "general",
    }
    info = read(tmp_path, {"metadata": metadata}).info
    assert (info.name, info.sparsity, info.description) == ("m", 0.25, "text")
    assert (info.priority, info.parent) == ("Primary", "general")
    assert info.quality is not None
    assert (info.quality.metric, info.quality.value, info.quality.extra) == ("heldout_ppl_ratio", 0.97, {"other": 1})


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[]",
        '{"layer_gates": [NaN, 1]}',
        {"ffn_mask": []},
        {"ffn_masks": {}},
        {"ffn_masks": [None]},
        {"ffn_masks": [[1] * (WIDTH - 1), None]},
        {"head_masks": [[1] * HEADS] * 3},
        {"head_masks": [[1, 1, 1, "1"], None]},
        {"head_masks": [5, None]},
        {"layer_gates": [1]},
        {"layer_gates": 1},
        {"layer_gates": [[1], [1]]},
        {"metadata": []},
        {"metadata": {"sparsity": 2}},
        {"metadata": {"sparsity": "0.5"}},
        {"metadata": {"quality": 0.9}},
        {"metadata": {"quality": {"value": 1}}},
        {"metadata": {"priority": "High"}},
        {"metadata": {"parent": 1}},
    ],
)
def test_what_is_no_mask_of_the_model(document: Any, tmp_path: Path) -> None:
    with pytest.raises(CortiqError) as caught:
        read(tmp_path, document)
    assert caught.value.kind == "SourceError.mask"
    assert caught.value.path == str(tmp_path / "mask.json")


def test_experts_of_a_model_that_has_none(tmp_path: Path) -> None:
    for rows in ([[], []], [[1], [1]]):
        with pytest.raises(CortiqError) as caught:
            read(tmp_path, {"expert_masks": rows})
        assert caught.value.kind in ("UsageError.mask_shape", "SourceError.mask")


def test_another_file(tmp_path: Path) -> None:
    path = two_layers().save(tmp_path / "other.cmf")
    with open_single(path) as file:
        mask = mask_source(path).read(file.arch, "code")
        assert file.masks is not None
        assert np.array_equal(mask.ffn, file.masks["code"].ffn)
        with pytest.raises(CortiqError, match="general, code") as caught:
            mask_source(path).read(file.arch, "none")
        assert caught.value.kind == "UsageError.mask"
    with pytest.raises(FileNotFoundError):
        mask_source(tmp_path / "none.json")


def test_golden_masks(tmp_path: Path) -> None:
    """The bits another writer made of the same JSON."""
    made = json.loads((DATA / "sections" / "expected.json").read_text())["masks-f16"]
    section = (DATA / "sections" / "masks-f16.masks").read_bytes()
    path = Cmf(header(arch=made["arch"]), [], masks=section, features=3).build().save(tmp_path / "model.cmf")
    with open_single(path) as file:
        assert file.masks is not None
        for wanted, given in zip(file.masks.values(), sorted((DATA / "maskdir").glob("*.json")), strict=True):
            mask = mask_source(given).read(file.arch, wanted.name)
            for part in ("ffn", "heads", "gates"):
                assert np.array_equal(getattr(mask, part), getattr(wanted, part)), (wanted.name, part)
            assert mask.info.sparsity == pytest.approx(wanted.info.sparsity)
            assert mask.info.quality == wanted.info.quality
