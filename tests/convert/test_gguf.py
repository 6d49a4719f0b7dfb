"""GGUF files: the same model as the checkpoint they were made from, and refusals by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import cortiq
from builders.gguf_files import write_gguf
from builders.tiny import DATA
from cortiq.convert import ConvertOptions, convert
from cortiq.convert.sources.gguf_file import GgufFile
from cortiq.errors import CortiqError, MissingTensor, SourceError, UnsupportedArch

FAMILIES = [("llama", "llama"), ("llama_tied_bias", "llama"), ("qwen2", "qwen2"), ("gemma3", "gemma3")]
# What a GGUF does not say, or says in its own words.
SOURCE_FIELDS = {"arch_name", "query_pre_attn_scalar", "max_position_embeddings"}


def converted(source: Path, output: Path, **options: Any) -> cortiq.File:
    convert(source, output, ConvertOptions(quant="f32", embed="same", head="same", **options))
    return cortiq.open(output)


@pytest.mark.parametrize(("folder", "architecture"), FAMILIES)
def test_same_tensors_and_arch_as_the_checkpoint(folder: str, architecture: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", DATA / folder, architecture)
    with (
        converted(path, tmp_path / "gguf.cmf") as ours,
        converted(DATA / folder, tmp_path / "hf.cmf") as expected,
    ):
        assert list(ours.tensors) == list(expected.tensors)
        for name in expected:
            np.testing.assert_allclose(ours[name].numpy(), expected[name].numpy(), rtol=1e-3, atol=1e-3, err_msg=name)
            if "norm" not in name:  # norms went through w + 1 and f16
                np.testing.assert_array_equal(ours[name].numpy(), expected[name].numpy(), err_msg=name)
        arch, wanted = ours.header.to_dict()["arch"], expected.header.to_dict()["arch"]
        for key in set(wanted) - SOURCE_FIELDS:
            assert arch.get(key) == pytest.approx(wanted[key]), key


@pytest.mark.parametrize(("folder", "architecture"), FAMILIES[:3])
def test_logits_equal_those_of_transformers(folder: str, architecture: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", DATA / folder, architecture)
    convert(path, tmp_path / "model.cmf", ConvertOptions(quant="f32", embed="same", head="same"))
    with (
        np.load(DATA / folder / "expected.npz") as expected,
        cortiq.load(tmp_path / "model.cmf", mode="exact") as model,
    ):
        logits = expected["logits"]
        found = model.forward(expected["input_ids"].tolist())
    assert np.abs(found - logits).max() / np.abs(logits).max() < 1e-4


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "BF16"])
def test_block_formats_decode_as_the_package_decodes_them(kind: str, tmp_path: Path) -> None:
    ggml = gguf.GGMLQuantizationType[kind]
    path = write_gguf(tmp_path / "model.gguf", DATA / "qwen2", "qwen2", kind=ggml)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with converted(path, tmp_path / "model.cmf") as file:
        for layer in range(file.arch.num_layers):
            tensor = theirs[f"blk.{layer}.ffn_down.weight"]
            assert tensor.tensor_type == ggml
            expected = gguf.quants.dequantize(tensor.data, ggml)
            found = file[f"model.layers.{layer}.mlp.down_proj.weight"].numpy()
            np.testing.assert_array_equal(found, expected.reshape(found.shape))


def test_reads_what_the_package_reads(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", DATA / "llama", "llama")
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            found, expected = ours.metadata[key], field.contents()
            assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected), key
    assert {(t.name, t.data_offset, t.n_bytes) for t in theirs.tensors} == {
        (name, record.offset, record.nbytes) for name, record in ours.records.items()
    }
    ours.close()


REFUSED: list[tuple[str, dict[str, Any], type[CortiqError], str]] = [
    ("unknown tensor", {"tensors": {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}}, UnsupportedArch, "attn_sinks"),
    ("missing tensor", {"tensors": {"blk.1.ffn_up.weight": None}}, MissingTensor, "layers.1.mlp.up_proj"),
    ("unknown key", {"metadata": {"llama.expert_count": 8}}, UnsupportedArch, "expert_count"),
    ("partial rotary", {"metadata": {"llama.rope.dimension_count": 4}}, UnsupportedArch, "partial rotary"),
    ("lone attn_factor", {"metadata": {"llama.rope.scaling.attn_factor": 1.5}}, UnsupportedArch, "without yarn"),
    ("unknown scaling", {"metadata": {"llama.rope.scaling.type": "longrope"}}, UnsupportedArch, "longrope"),
    ("one of several", {"metadata": {"split.count": 3}}, SourceError, "split"),
]


@pytest.mark.parametrize(("changes", "kind", "named"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_by_name(changes: dict[str, Any], kind: type[CortiqError], named: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", DATA / "llama", "llama", **changes)
    with pytest.raises(kind, match=named):
        convert(path, tmp_path / "model.cmf")
    assert not (tmp_path / "model.cmf").exists()


def test_unknown_architecture_is_named_with_exit_code_7(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "falcon")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedArch, match="falcon") as caught:
        convert(tmp_path / "model.gguf", tmp_path / "model.cmf")
    assert caught.value.exit_code == 7


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 200, 2000, -100, -1])
def test_truncated_files_are_refused(keep: int, tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "whole.gguf", DATA / "qwen2", "qwen2").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[:keep])
    with pytest.raises(SourceError):
        convert(tmp_path / "cut.gguf", tmp_path / "model.cmf")
