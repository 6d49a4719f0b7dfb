"""A GGUF of fifteen block formats, with the logits another implementation computes for it."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import cortiq
from builders.tiny import DATA
from cortiq.convert import ConvertOptions, convert

GOLDEN = DATA.parent / "gguf"
HEAD_DIM = 32
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
IDS = [1] + [(11 * i * i + 5 * i + 7) % 90 + 4 for i in range(60)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden file with a vocabulary that has merges: its own has none."""
    path = tmp_path_factory.mktemp("gguf") / "mixed-llama.gguf"
    reader = gguf.GGUFReader(GOLDEN / "mixed-llama.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("llama."):
            writer.add_key_value(key, field.contents(), field.types[0])
    vocab = reader.fields["llama.vocab_size"].contents()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*(f"<t{i}>" for i in range(vocab - 3)), "a", "b", "ab"])
    writer.add_token_types([gguf.TokenType.USER_DEFINED] * (vocab - 3) + [gguf.TokenType.NORMAL] * 3)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def canonical(name: str) -> str:
    stem = name.removesuffix(".weight")
    if layer := re.fullmatch(r"blk\.(\d+)\.(.+)", stem):
        return f"model.layers.{layer[1]}.{NAMES[layer[2]]}.weight"
    return f"{NAMES[stem]}.weight"


def checkpoint_rows(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of query and key heads as the checkpoint has them: first halves, then second halves."""
    pairs = values.reshape(-1, HEAD_DIM // 2, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def test_every_block_format(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "model.cmf", ConvertOptions(quant="f32", threads=2))
    seen = set()
    with cortiq.open(tmp_path / "model.cmf") as file:
        for tensor in gguf.GGUFReader(source).tensors:
            expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if re.search(r"attn_[qk]\.", tensor.name):
                expected = checkpoint_rows(expected)
            if expected.ndim == 1:
                expected = expected.astype(np.float16).astype(np.float32)
            found = file[canonical(tensor.name)].numpy()
            np.testing.assert_array_equal(found, expected, err_msg=tensor.name)
            seen.add(tensor.tensor_type.name)
    assert len(seen) == 15


def test_logits(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "model.cmf", ConvertOptions(quant="f16"))
    with np.load(GOLDEN / "logits.npz") as golden, cortiq.load(tmp_path / "model.cmf", mode="exact") as model:
        found, expected = model.forward(IDS)[-1], golden["f16"]
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4
