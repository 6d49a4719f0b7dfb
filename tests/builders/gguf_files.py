"""GGUF files made from the committed Hugging Face checkpoints by the gguf package's own writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

F32 = NDArray[np.float32]
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_NORMS = {
    "llama": {"post_attention_layernorm": "ffn_norm"},
    "qwen2": {"post_attention_layernorm": "ffn_norm"},
    "gemma3": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
}


def write_gguf(path: Path, folder: Path, architecture: str, **changes: Any) -> Path:
    """The checkpoint in ``folder`` as llama.cpp's exporter stores it, in f32.

    ``changes``: ``metadata`` (added: an int as u32, a float as f32, a str as string), ``tensors`` (name to f32
    array, added or replaced, None removes), ``kind`` (a quantization type of the package for the layers' matrices).
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    _metadata(writer, config)
    _tokenizer(writer, config["vocab_size"])
    for key, value in changes.get("metadata", {}).items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(key, value)
    tensors = {_name(name, architecture): _stored(name, t, config, architecture) for name, t in _load(folder).items()}
    tensors |= changes.get("tensors", {})
    kind = changes.get("kind")
    for name, values in tensors.items():
        if values is None:
            continue
        if kind is not None and values.ndim == 2 and name.startswith("blk."):
            packed = gguf.quants.quantize(np.ascontiguousarray(values), kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _load(folder: Path) -> dict[str, F32]:
    return {name: t.astype(np.float32) for name, t in load_file(folder / "model.safetensors").items()}


def _name(name: str, architecture: str) -> str:
    stem, _, end = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{end}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{(_LAYER | _NORMS[architecture])[inner]}.{end}"


def _stored(name: str, values: F32, config: dict[str, Any], architecture: str) -> F32:
    if architecture == "gemma3" and values.ndim == 1 and "norm" in name:
        return values + np.float32(1)
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return halves.swapaxes(1, 2).reshape(values.shape)
    return values


def _metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])
        pattern = config["layer_types"].index("full_attention") + 1
        writer.add_uint32("gemma3.attention.sliding_window_pattern", pattern)


def _tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    tokens = ["a", "b", "ab", *(f"<t{i}>" for i in range(3, vocab))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 3 + [gguf.TokenType.USER_DEFINED] * (vocab - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(3)
    writer.add_eos_token_id(4)
