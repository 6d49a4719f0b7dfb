"""The pipeline: bytes that depend on source and options only, refusals that leave nothing behind, dtypes by policy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cortiq
from builders.tiny import DATA
from builders.weights import heavy_tailed
from cortiq.convert import ConvertOptions, convert, parse_overrides
from cortiq.edit.requant import requant
from cortiq.edit.shard import shard
from cortiq.errors import NonFinite, UsageError
from cortiq.layouts import layout


@pytest.mark.parametrize("quant", ["q4_tiled", "q8_row", "q8_2f", "f16"])
def test_bytes_do_not_depend_on_threads_or_folder(quant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 1000)
    shutil.copytree(DATA / "qwen2", tmp_path / "elsewhere" / "qwen2")
    convert(DATA / "qwen2", tmp_path / "a.cmf", ConvertOptions(quant=quant))
    expected = (tmp_path / "a.cmf").read_bytes()
    for threads in (2, 5):
        convert(tmp_path / "elsewhere" / "qwen2", tmp_path / "b.cmf", ConvertOptions(quant=quant, threads=threads))
        assert (tmp_path / "b.cmf").read_bytes() == expected
        (tmp_path / "b.cmf").unlink()


def test_blocks_do_not_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(DATA / "llama", tmp_path / "a.cmf", ConvertOptions(quant="q8_row"))
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 64)
    convert(DATA / "llama", tmp_path / "b.cmf", ConvertOptions(quant="q8_row", threads=2))
    assert (tmp_path / "a.cmf").read_bytes() == (tmp_path / "b.cmf").read_bytes()


@pytest.mark.parametrize("quant", ["q4_block", "q8_2f", "q1", "q1p", "q1s", "q1t"])
def test_blocks_give_the_payload_of_the_whole_tensor(
    quant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 1000)
    monkeypatch.setattr("cortiq.layouts.q1s._SURVEY_WEIGHTS", 1000)
    options = ConvertOptions(quant=quant, embed="same", head="same", threads=3, digests=False)
    receipt = convert(DATA / "llama", tmp_path / "model.cmf", options)
    weights = load_file(DATA / "llama" / "model.safetensors")
    with cortiq.open(tmp_path / "model.cmf") as file:
        matrices = [name for name in file if len(file[name].shape) == 2]
        assert len(matrices) == receipt.dtypes[quant]
        for name in matrices:
            assert bytes(file[name].raw) == layout(quant).encode(weights[name]), name


def test_a_matrix_with_loud_columns_gets_column_factors_and_nothing_else_does(tmp_path: Path) -> None:
    folder, loud = tmp_path / "llama", "model.layers.1.mlp.down_proj.weight"
    shutil.copytree(DATA / "llama", folder)
    tensors = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    for name in (loud, "model.embed_tokens.weight"):
        tensors[name] = heavy_tailed(*tensors[name].shape)
        tensors[name][:, 5] *= 40
    save_file(tensors, folder / "model.safetensors")
    path = tmp_path / "model.cmf"

    def with_factors(quant: str, **given: object) -> list[str]:
        convert(folder, path, replace(ConvertOptions(quant=quant, force=True), **given))
        with cortiq.open(path) as file:
            assert not cortiq.container.verify(file).problems
            return [name for name in file if file[name].dtype == "q8_2f"]

    assert with_factors("q8_row") == [loud]
    assert with_factors("q8_row", encoder="plain") == []
    assert with_factors("q8_row", overrides=parse_overrides(["down_proj=q8_row"])) == []
    assert with_factors("q4_tiled") == []
    with_factors("f32")
    requant(path, tmp_path / "again.cmf", ConvertOptions(quant="q8_row"))
    with cortiq.open(tmp_path / "again.cmf") as file:
        assert [name for name in file if file[name].dtype == "q8_2f"] == [loud]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_a_weight_that_is_no_number_is_named(bad: float, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(DATA / "llama", folder)
    tensors = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    tensors[name].reshape(-1)[37] = bad
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(NonFinite, match="37") as caught:
        convert(folder, tmp_path / "model.cmf", ConvertOptions(quant="q4_tiled"))
    assert caught.value.tensor == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama"]


def test_an_output_is_never_overwritten_unasked(tmp_path: Path) -> None:
    output = tmp_path / "model.cmf"
    output.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists"):
        convert(DATA / "llama", output)
    assert output.read_bytes() == b"precious"
    convert(DATA / "llama", output, ConvertOptions(force=True))
    cortiq.open(output).close()


def test_progress_reaches_the_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    convert(DATA / "llama", tmp_path / "model.cmf", progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def dtypes(options: ConvertOptions, tmp_path: Path, family: str = "llama") -> dict[str, str]:
    convert(DATA / family, tmp_path / "model.cmf", options)
    with cortiq.open(tmp_path / "model.cmf") as file:
        return {name: file[name].dtype for name in file}


def test_four_bit_files_keep_embedding_and_head_at_eight(tmp_path: Path) -> None:
    found = dtypes(ConvertOptions(quant="q4_tiled"), tmp_path)
    assert found["model.embed_tokens.weight"] == found["lm_head.weight"] == "q8_row"
    assert found["model.layers.0.self_attn.q_proj.weight"] == "q4_tiled"
    assert found["model.norm.weight"] == "f16"


def test_ends_and_rules_go_before_the_policy(tmp_path: Path) -> None:
    rules = parse_overrides((r"layers\.0\..*down_proj=q8", "norm=f32"))
    found = dtypes(ConvertOptions(quant="q4_tiled", embed="same", head="f16", overrides=rules), tmp_path)
    assert found["model.embed_tokens.weight"] == "q4_tiled"
    assert found["lm_head.weight"] == "f16"
    assert found["model.layers.0.mlp.down_proj.weight"] == "q8_row"
    assert found["model.layers.1.mlp.down_proj.weight"] == "q4_tiled"
    assert found["model.norm.weight"] == "f32"


def test_a_rule_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matches no tensor"):
        dtypes(ConvertOptions(overrides=parse_overrides(("no_such=q8",))), tmp_path)


def test_what_f16_cannot_hold_is_stored_as_f32(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(DATA / "llama", folder)
    tensors = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, folder / "model.safetensors")
    receipt = convert(folder, tmp_path / "model.cmf")
    with cortiq.open(tmp_path / "model.cmf") as file:
        assert file["model.norm.weight"].dtype == "f32"
        assert file["model.norm.weight"].numpy()[3] == 1e6
    assert any("model.norm.weight" in warning for warning in receipt.warnings)


@pytest.mark.parametrize("quant", ["q8_row", "vbit_ro"])
@pytest.mark.parametrize("digests", [True, False])
def test_a_converted_set_is_the_converted_file_sharded(quant: str, digests: bool, tmp_path: Path) -> None:
    options = ConvertOptions(quant=quant, digests=digests)
    whole = convert(DATA / "llama", tmp_path / "a.cmf", options)
    receipt = convert(DATA / "llama", tmp_path / "b.cmf", replace(options, threads=3, shard_bytes=300_000))
    assert (receipt.output, receipt.tensors) == (tmp_path / f"b-00001-of-0000{receipt.files}.cmf", whole.tensors)
    assert receipt.files > 2
    with cortiq.open(receipt.output) as file:
        assert sum(part.size for part in file.parts) == receipt.bytes_out
    if digests:
        written = shard(tmp_path / "a.cmf", tmp_path / "c", 300_000)
        ours = [path.read_bytes() for path in sorted(tmp_path.glob("b-*"))]
        assert ours == [path.read_bytes() for path in written.paths]
    with pytest.raises(UsageError, match="exists"):
        convert(DATA / "llama", tmp_path / "b.cmf", replace(options, shard_bytes=10**9))


def test_a_set_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(DATA / "llama", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], np.nan)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(NonFinite):
        convert(folder, tmp_path / "m.cmf", ConvertOptions(shard_bytes=300_000))
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]
