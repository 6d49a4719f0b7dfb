"""Hugging Face folders: every family's logits through a written file, shards, and refusals by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cortiq
from builders.golden import FAMILIES
from builders.tiny import DATA
from cortiq.convert import ConvertOptions, convert
from cortiq.errors import MissingTensor, ShapeMismatch, SourceError, UnsupportedArch


def copy(folder: str, to: Path, config: dict[str, Any] | None = None) -> Path:
    shutil.copytree(DATA / folder, to)
    if config is not None:
        path = to / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return to


@pytest.mark.parametrize("quant", ["bf16", "f32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family: str, quant: str, tmp_path: Path) -> None:
    convert(DATA / family, tmp_path / "model.cmf", ConvertOptions(quant=quant))
    with (
        np.load(DATA / family / "expected.npz") as expected,
        cortiq.load(tmp_path / "model.cmf", mode="exact") as model,
    ):
        ids, logits, prompt = expected["input_ids"].tolist(), expected["logits"], int(expected["prompt_len"])
        found = model.forward(ids)
        assert np.abs(found - logits).max() / np.abs(logits).max() < 1e-4
        greedy = model.generate(ids[:prompt], max_tokens=16, temperature=0.0, ignore_eos=True)
        assert list(greedy.tokens) == expected["greedy"].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_is_copied_bit_for_bit_and_the_tokenizer_verbatim(family: str, tmp_path: Path) -> None:
    convert(DATA / family, tmp_path / "model.cmf", ConvertOptions(quant="bf16"))
    source = load_file(DATA / family / "model.safetensors")
    with cortiq.open(tmp_path / "model.cmf") as file:
        for name, tensor in file.tensors.items():
            if len(tensor.shape) == 2 and name != "cmf.digests.sha256":
                assert bytes(file[name].raw) == source[name].tobytes(), name
        assert file.tokenizer_json == (DATA / family / "tokenizer.json").read_bytes()
        assert file.tokenizer_config is not None
        assert file.tokenizer_config["chat_template"] == (DATA / family / "chat_template.jinja").read_text()


def test_shards_give_the_same_tensors_as_one_file(tmp_path: Path) -> None:
    sharded = copy("qwen2", tmp_path / "qwen2")
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    weight_map = {}
    for part in range(3):
        name = f"model-{part + 1:05}-of-00003.safetensors"
        mine = dict(sorted(tensors.items())[part::3])
        save_file(mine, sharded / name)
        weight_map |= dict.fromkeys(mine, name)
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    convert(sharded, tmp_path / "shards.cmf")
    convert(DATA / "qwen2", tmp_path / "one.cmf")
    assert (tmp_path / "shards.cmf").read_bytes() == (tmp_path / "one.cmf").read_bytes()
    weight_map.pop("model.norm.weight")
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(SourceError, match=r"model\.norm\.weight"):
        convert(sharded, tmp_path / "bad.cmf")


CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("model type", {"model_type": "mamba"}, "mamba"),
    ("keys", {"residual_multiplier": 0.2, "attention_multiplier": 1.5}, "attention_multiplier, residual_multiplier"),
    ("activation", {"hidden_act": "relu"}, "relu"),
    ("mlp bias", {"mlp_bias": True}, "mlp_bias"),
    ("rope kind", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "longrope"),
    ("rope key", {"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 1e4, "odd": 1}}, "odd"),
]


@pytest.mark.parametrize(("config", "named"), [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS])
def test_what_a_configuration_asks_for_is_known_or_refused(config: dict[str, Any], named: str, tmp_path: Path) -> None:
    folder = copy("llama", tmp_path / "llama", config)
    with pytest.raises(UnsupportedArch, match=named) as caught:
        convert(folder, tmp_path / "model.cmf")
    assert caught.value.exit_code == 7


def test_every_unknown_tensor_is_named(tmp_path: Path) -> None:
    folder = copy("llama", tmp_path / "llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.router.weight"] = np.ones((2, 2), np.float32)
    tensors["model.extra.weight"] = np.ones(2, np.float32)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UnsupportedArch, match=r"model\.extra\.weight, model\.layers\.0\.mlp\.router\.weight"):
        convert(folder, tmp_path / "model.cmf")


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    folder = copy("llama", tmp_path / "llama")
    tensors = load_file(folder / "model.safetensors")
    norm = tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(MissingTensor, match=r"model\.norm\.weight"):
        convert(folder, tmp_path / "model.cmf")
    save_file(tensors | {"model.norm.weight": norm[:-1].copy()}, folder / "model.safetensors")
    with pytest.raises(ShapeMismatch, match=r"model\.norm\.weight"):
        convert(folder, tmp_path / "model.cmf")


@pytest.mark.parametrize("old", [True, False])
def test_linear_scaling_divides_all_frequencies(old: bool, tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    config: dict[str, Any] = {"rope_parameters": {**scaling, "rope_theta": 5e4}}
    if old:
        config = {"rope_parameters": None, "rope_theta": 5e4, "rope_scaling": scaling}
    folder = copy("llama", tmp_path / "llama", config)
    convert(folder, tmp_path / "model.cmf")
    with cortiq.open(tmp_path / "model.cmf") as file:
        arch = file.header.to_dict()["arch"]
    assert arch["rope_theta"] == 5e4
    assert arch["rope_freq_factors"] == [4.0] * (arch["head_dim"] // 2)
