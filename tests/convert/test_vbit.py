"""Files of vbit, q4tp and q2tp from a checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cortiq
from builders.tiny import DATA
from cortiq.convert import ConvertOptions, convert
from cortiq.errors import NonFinite
from cortiq.layouts import layout

HASHES = json.loads((DATA.parent / "layouts" / "cmf" / "hashes.json").read_text())["llama"]
UPSTREAM: dict[str, Any] = {"embed": "same", "head": "same", "encoder": "plain", "digests": False}
TARGETS = {
    "vbit4_25": ConvertOptions(quant="vbit_ro", **UPSTREAM),
    "vbit5_5": ConvertOptions(quant="vbit_ro", mean_bits=5.5, **UPSTREAM),
    "q4tp": ConvertOptions(quant="q4tp", **UPSTREAM),
    "q2tp": ConvertOptions(quant="q2tp", **UPSTREAM),
}


@pytest.mark.parametrize("target", TARGETS)
def test_plain_files_hold_upstreams_bytes(target: str, tmp_path: Path) -> None:
    convert(DATA / "llama", tmp_path / "model.cmf", TARGETS[target])
    with cortiq.open(tmp_path / "model.cmf") as file:
        entries = file.tensors.values()
        found = {e.name: [layout(e.dtype).name, list(e.shape), e.nbytes, f"{e.hash:016x}"] for e in entries}
    assert found == HASHES[target]


@pytest.mark.parametrize("quant", ["vbit_ro", "q4tp", "q2tp"])
def test_bytes_do_not_depend_on_threads_or_blocks(quant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(DATA / "qwen2", tmp_path / "a.cmf", ConvertOptions(quant=quant))
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 500)
    monkeypatch.setattr("cortiq.convert.amplitudes._BLOCK_WEIGHTS", 300)
    convert(DATA / "qwen2", tmp_path / "b.cmf", ConvertOptions(quant=quant, threads=3))
    assert (tmp_path / "a.cmf").read_bytes() == (tmp_path / "b.cmf").read_bytes()


def test_the_budget_is_met(tmp_path: Path) -> None:
    sizes = []
    for mean_bits in (3.0, 4.25, 6.0, 8.0):
        output = tmp_path / f"{mean_bits}.cmf"
        receipt = convert(DATA / "llama", output, ConvertOptions(quant="vbit_ro", mean_bits=mean_bits, threads=2))
        sizes.append(receipt.bytes_out)
        with cortiq.open(output) as file:
            assert file.header["provenance"]["options"]["mean_bits"] == mean_bits
            for name in file:
                file[name].validate()
    assert sizes == sorted(sizes)


def test_progress_reaches_the_whole_in_two_passes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    options = ConvertOptions(quant="vbit_ro")
    convert(DATA / "llama", tmp_path / "model.cmf", options, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def test_a_weight_that_is_no_number_is_named_before_anything_is_written(tmp_path: Path) -> None:
    folder, name = tmp_path / "llama", "model.layers.1.mlp.up_proj.weight"
    shutil.copytree(DATA / "llama", folder)
    tensors = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    tensors[name][3, 5] = np.inf
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(NonFinite, match=r"\[3, 5\]") as caught:
        convert(folder, tmp_path / "model.cmf", ConvertOptions(quant="vbit_ro"))
    assert caught.value.tensor == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama"]


def test_ends_stay_at_eight_bits(tmp_path: Path) -> None:
    convert(DATA / "llama", tmp_path / "model.cmf", ConvertOptions(quant="vbit_ro"))
    with cortiq.open(tmp_path / "model.cmf") as file:
        assert file["model.embed_tokens.weight"].dtype == file["lm_head.weight"].dtype == "q8_row"
        assert file["model.layers.0.mlp.up_proj.weight"].dtype == "vbit_ro"
        assert file.header.quant_type == "VBIT"
