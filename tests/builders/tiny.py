"""Tiny random decoders, the same for the same seed, written as CMF files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container.writer import TensorSpec, write_file
from cortiq.layouts import layout

F32 = NDArray[np.float32]
DATA = Path(__file__).parents[1] / "data" / "hf"


@dataclass(frozen=True, slots=True)
class Tiny:
    """Shape of a model. ``matrix`` is the dtype of 2-D weights, ``arch`` overrides header keys."""

    hidden: int = 64
    width: int = 96
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    vocab: int = 512
    max_positions: int = 256
    seed: int = 0
    matrix: str = "f32"
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    sandwich: bool = False
    arch: Mapping[str, Any] = field(default_factory=dict)


def arch_of(tiny: Tiny) -> dict[str, Any]:
    """The header's ``arch``."""
    return {
        "arch_name": "tiny",
        "hidden_size": tiny.hidden,
        "intermediate_size": tiny.width,
        "num_layers": tiny.layers,
        "num_attention_heads": tiny.heads,
        "num_kv_heads": tiny.kv_heads,
        "head_dim": tiny.head_dim,
        "vocab_size": tiny.vocab,
        "layer_types": ["FullAttention"] * tiny.layers,
        "rms_norm_eps": 1e-6,
        "norm_style": "qwen",
        "max_position_embeddings": tiny.max_positions,
        "tie_word_embeddings": tiny.tied,
        **tiny.arch,
    }


def weights_of(tiny: Tiny) -> dict[str, F32]:
    """All tensors by name, in f32, in directory order."""
    rng = np.random.default_rng(tiny.seed)
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (tiny.vocab, tiny.hidden)}
    for i in range(tiny.layers):
        attention, ffn, layer = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp.", f"model.layers.{i}."
        norms = ["input", "post_attention"]
        norms += ["pre_feedforward", "post_feedforward"] if tiny.sandwich else []
        shapes |= {f"{layer}{name}_layernorm.weight": (tiny.hidden,) for name in norms}
        for part, rows in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{attention}{part}_proj.weight"] = (rows, tiny.hidden)
            if tiny.qkv_bias:
                shapes[f"{attention}{part}_proj.bias"] = (rows,)
        shapes[f"{attention}o_proj.weight"] = (tiny.hidden, q)
        if tiny.output_bias:
            shapes[f"{attention}o_proj.bias"] = (tiny.hidden,)
        if tiny.qk_norm:
            shapes |= {f"{attention}{part}_norm.weight": (tiny.head_dim,) for part in "qk"}
        shapes |= {f"{ffn}{part}_proj.weight": (tiny.width, tiny.hidden) for part in ("gate", "up")}
        shapes[f"{ffn}down_proj.weight"] = (tiny.hidden, tiny.width)
    shapes["model.norm.weight"] = (tiny.hidden,)
    if not tiny.tied:
        shapes["lm_head.weight"] = (tiny.vocab, tiny.hidden)
    return {name: _draw(rng, name, shape) for name, shape in shapes.items()}


def write_tiny(
    path: Path,
    tiny: Tiny | None = None,
    *,
    header: Mapping[str, Any] | None = None,
    tokenizer: bytes | None = None,
    weights: Mapping[str, F32] | None = None,
) -> Path:
    """Writes the model and returns ``path``. ``header`` adds top-level keys, ``weights`` replaces the tensors."""
    tiny = tiny or Tiny()
    specs = []
    for name, values in (weights_of(tiny) if weights is None else weights).items():
        kind = layout(tiny.matrix if values.ndim == 2 else "f16")
        payload = kind.encode(values)
        specs.append(TensorSpec(name, kind.id, values.shape, len(payload), [payload]))
    write_file(path, {"arch": arch_of(tiny), "quant_type": "F32", **(header or {})}, specs, vocab=tokenizer)
    return path


def tokenizer_json() -> bytes:
    """A tokenizer of 512 ids with a BOS (1), ``</s>`` (2) and ``<|im_end|>``."""
    return (DATA / "llama" / "tokenizer.json").read_bytes()


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> F32:
    values = rng.standard_normal(shape)
    if name.endswith("norm.weight"):
        values = 1 + 0.1 * values
    elif len(shape) == 2:
        values = values / np.sqrt(shape[1]) * (10 if name.endswith("embed_tokens.weight") else 2)
    else:
        values = 0.1 * values
    # Representable in f16, as 1-D tensors are stored.
    return values.astype(np.float16).astype(np.float32)
