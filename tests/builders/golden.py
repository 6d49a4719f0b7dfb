"""The committed Hugging Face checkpoints of random weights as models: header keys by hand, tensors as stored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from builders.tiny import DATA

FAMILIES = ("llama", "llama3_rope", "llama_tied_bias", "llama_yarn", "mistral", "qwen2", "gemma3")
_SLIDING, _FULL = "SlidingAttention", "FullAttention"


@dataclass(frozen=True, slots=True)
class Golden:
    """``arch`` of the header, tensors in f32, and what transformers computes: ids [30], logits f32 [30, vocab] and
    the ids greedy decoding appends to the first ``prompt_len``."""

    arch: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]
    input_ids: list[int]
    logits: NDArray[np.float32]
    greedy: list[int]
    prompt_len: int


def golden(family: str) -> Golden:
    """One of FAMILIES."""
    folder = DATA / family
    config = json.loads((folder / "config.json").read_text())
    with np.load(folder / "expected.npz") as expected:
        return Golden(
            arch=_arch(family, config),
            tensors={n: t.astype(np.float32) for n, t in load_file(folder / "model.safetensors").items()},
            input_ids=expected["input_ids"].tolist(),
            logits=expected["logits"],
            greedy=expected["greedy"].tolist(),
            prompt_len=int(expected["prompt_len"]),
        )


def max_relative_error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Largest absolute difference over the largest absolute value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _arch(family: str, config: dict[str, Any]) -> dict[str, Any]:
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    rope = config["rope_parameters"]
    arch = {
        "arch_name": config["model_type"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_layers": layers,
        "num_attention_heads": heads,
        "num_kv_heads": config["num_key_value_heads"],
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "vocab_size": config["vocab_size"],
        "layer_types": [_FULL] * layers,
        "rms_norm_eps": config["rms_norm_eps"],
        "norm_style": "qwen",
        "rope_theta": rope.get("rope_theta", 10000.0),
        "max_position_embeddings": config["max_position_embeddings"],
        "tie_word_embeddings": config["tie_word_embeddings"],
    }
    if family == "mistral":
        arch |= {"layer_types": [_SLIDING] * layers, "sliding_window": config["sliding_window"]}
    if family == "llama_yarn":
        keys = ("factor", "original_max_position_embeddings")
        arch["yarn"] = {key: rope[key] for key in keys} | {"attention_factor": 0.1 * math.log(rope["factor"]) + 1}
    if family == "llama3_rope":
        arch["rope_freq_factors"] = _llama3_divisors(rope, arch["head_dim"])
    if family == "gemma3":
        arch |= {
            "layer_types": [_SLIDING if kind == "sliding_attention" else _FULL for kind in config["layer_types"]],
            "sliding_window": config["sliding_window"],
            "rope_theta": rope["full_attention"]["rope_theta"],
            "rope_local_base_freq": rope["sliding_attention"]["rope_theta"],
            "hidden_act": "gelu_tanh",
            "embed_multiplier": math.sqrt(config["hidden_size"]),
            "norm_style": "gemma",
            "query_pre_attn_scalar": config["query_pre_attn_scalar"],
        }
    return arch


def _llama3_divisors(rope: dict[str, Any], dim: int) -> list[float]:
    """llama3 scaling: short wavelengths stay, long ones are divided by ``factor``, those between are blended."""
    wavelength = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    turns = rope["original_max_position_embeddings"] / wavelength
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    share = np.clip((turns - low) / (high - low), 0, 1)
    divisors: list[float] = (1 / ((1 - share) / factor + share)).tolist()
    return divisors
