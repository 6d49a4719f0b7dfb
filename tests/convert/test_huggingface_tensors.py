"""Tensors of a folder that need a decision: copies, zero biases, buffers, other models, shards that disagree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

import cortiq
from builders.tiny import DATA
from cortiq.convert import ConvertOptions, Receipt, convert
from cortiq.errors import MissingTensor, SourceError, UnsupportedArch

Tensors = dict[str, NDArray[Any]]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def changed(folder: str, to: Path, change: Callable[[Tensors], Tensors | None], **config: Any) -> Path:
    """A copy of a golden checkpoint with other tensors and configuration."""
    shutil.copytree(DATA / folder, to)
    tensors = load_file(to / "model.safetensors")
    tensors = change(tensors) or tensors
    save_file(tensors, to / "model.safetensors")
    if config:
        settings = json.loads((to / "config.json").read_text()) | config
        (to / "config.json").write_text(json.dumps(settings))
    return to


def run(source: Path, output: Path, **options: Any) -> Receipt:
    return convert(source, output, ConvertOptions(quant="bf16", **options))


def payloads(path: Path) -> dict[str, bytes]:
    with cortiq.open(path) as file:
        return {name: bytes(file[name].raw) for name in file.tensors}


def test_a_tied_copy_of_the_embedding_is_stored_once(tmp_path: Path) -> None:
    source = changed("llama_tied_bias", tmp_path / "m", lambda t: t | {HEAD: t[EMBEDDING].copy()})
    receipt = run(source, tmp_path / "copy.cmf")
    run(DATA / "llama_tied_bias", tmp_path / "plain.cmf")
    assert payloads(tmp_path / "copy.cmf") == payloads(tmp_path / "plain.cmf")
    assert any(HEAD in note for note in receipt.warnings)


def test_a_tied_head_that_differs_is_kept_and_unties(tmp_path: Path) -> None:
    def change(tensors: Tensors) -> Tensors:
        other = tensors[EMBEDDING].copy()
        other[-1, -1] += 1
        return tensors | {HEAD: other}

    receipt = run(changed("llama_tied_bias", tmp_path / "m", change), tmp_path / "m.cmf")
    with cortiq.open(tmp_path / "m.cmf") as file:
        assert HEAD in file.tensors
        assert file.arch.tie_word_embeddings is False
    assert any("differs" in note for note in receipt.warnings)


def test_an_untied_model_needs_a_head(tmp_path: Path) -> None:
    source = changed("llama", tmp_path / "m", lambda t: {n: v for n, v in t.items() if n != HEAD})
    with pytest.raises(MissingTensor, match="lm_head"):
        run(source, tmp_path / "m.cmf")


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_bias_of_the_output_projection_must_be_zero(value: float, tmp_path: Path) -> None:
    def change(tensors: Tensors) -> Tensors:
        biases = {}
        for name, weight in tensors.items():
            if name.endswith("self_attn.o_proj.weight"):
                biases[name.replace("weight", "bias")] = np.full(len(weight), value, weight.dtype)
        return tensors | biases

    source = changed("qwen2", tmp_path / "m", change)
    if value:
        with pytest.raises(UnsupportedArch, match=r"self_attn\.o_proj\.bias"):
            run(source, tmp_path / "m.cmf")
        return
    receipt = run(source, tmp_path / "m.cmf")
    assert not any(name.endswith("o_proj.bias") for name in payloads(tmp_path / "m.cmf"))
    assert any("zero" in note for note in receipt.warnings)


def test_inverse_frequencies_are_no_weights(tmp_path: Path) -> None:
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32) for i in range(4)}
    source = changed("llama", tmp_path / "m", lambda t: t | buffers | {"model.rotary_emb.inv_freq": np.ones(16)})
    run(source, tmp_path / "m.cmf")
    run(DATA / "llama", tmp_path / "plain.cmf")
    assert payloads(tmp_path / "m.cmf") == payloads(tmp_path / "plain.cmf")


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_language_model_of_a_larger_one(prefix: str, tmp_path: Path) -> None:
    def change(tensors: Tensors) -> Tensors:
        renamed = {prefix + name.removeprefix("model."): values for name, values in tensors.items()}
        return renamed | {"vision_tower.patch.weight": np.ones((2, 2), np.float32)}

    source = changed("gemma3", tmp_path / "m", change)
    text = json.loads((source / "config.json").read_text())
    outer = {"model_type": "gemma3", "text_config": text, "vision_config": {}, "tie_word_embeddings": True}
    (source / "config.json").write_text(json.dumps(outer))
    receipt = run(source, tmp_path / "m.cmf")
    run(DATA / "gemma3", tmp_path / "plain.cmf")
    assert payloads(tmp_path / "m.cmf") == payloads(tmp_path / "plain.cmf")
    assert any("vision_tower" in note for note in receipt.warnings)


def test_weights_are_widened_and_written_alike_from_every_element_type(tmp_path: Path) -> None:
    for dtype in (np.float32, np.float16):
        source = changed("llama", tmp_path / dtype.__name__, lambda t, d=dtype: {n: v.astype(d) for n, v in t.items()})
        convert(source, tmp_path / f"{dtype.__name__}.cmf", ConvertOptions(quant="q4_tiled", source_model="m"))
    convert(DATA / "llama", tmp_path / "bfloat16.cmf", ConvertOptions(quant="q4_tiled", source_model="m"))
    written = {(tmp_path / f"{name}.cmf").read_bytes() for name in ("float32", "bfloat16")}
    assert len(written) == 1  # f16 cannot hold the smallest bf16 weights
    assert len(payloads(tmp_path / "float16.cmf")) == 39 + 1  # and the digests


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    source = changed("llama", tmp_path / "m", lambda t: None)
    (source / "tokenizer.json").unlink()
    with pytest.raises(SourceError, match=r"tokenizer\.json"):
        run(source, tmp_path / "m.cmf")
    run(source, tmp_path / "m.cmf", allow_no_tokenizer=True)
    with cortiq.open(tmp_path / "m.cmf") as file:
        assert file.tokenizer_json is None


def test_token_ids_outside_the_vocabulary_are_left_out_and_said(tmp_path: Path) -> None:
    source = changed("llama", tmp_path / "m", lambda t: None, eos_token_id=[2, 512], pad_token_id=99999)
    (source / "generation_config.json").unlink()
    (source / "tokenizer_config.json").unlink()
    receipt = run(source, tmp_path / "m.cmf")
    with cortiq.open(tmp_path / "m.cmf") as file:
        assert file.tokenizer_config is not None
        assert list(file.tokenizer_config["eos_token_ids"]) == [2]
        assert "pad_token_id" not in file.tokenizer_config
    assert sum("outside the vocabulary" in note for note in receipt.warnings) == 2


def index(folder: Path, weight_map: object) -> Path:
    shutil.copytree(DATA / "qwen2", folder)
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@pytest.mark.parametrize(
    ("weight_map", "named"),
    [
        ({"model.norm.weight": "../part.safetensors"}, "outside"),
        ({"model.norm.weight": "other.safetensors"}, "other"),
        ({"model.norm.weight": "part.safetensors", "no.such.weight": "part.safetensors"}, "no.such.weight"),
        ({"model.norm.weight": "part.safetensors"}, "does not put there"),
        ({"model.norm.weight": 3}, "weight_map"),
        (None, "weight_map"),
    ],
)
def test_an_index_must_agree_with_its_shards(weight_map: object, named: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=named):
        run(index(tmp_path / "m", weight_map), tmp_path / "m.cmf")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_missing_files_are_named(missing: str, tmp_path: Path) -> None:
    source = changed("llama", tmp_path / "m", lambda t: None)
    (source / missing).unlink()
    with pytest.raises(SourceError, match=missing):
        run(source, tmp_path / "m.cmf")


def test_something_else_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(SourceError, match="neither"):
        run(tmp_path / "model.bin", tmp_path / "m.cmf")
    with pytest.raises(SourceError, match="No such file"):
        run(tmp_path / "nothing", tmp_path / "m.cmf")
